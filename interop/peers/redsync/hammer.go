package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/redis/go-redis/v9"
)

// work is a work order of the hammer.
type work struct {
	Names   []string `json:"names"`
	Threads int      `json:"threads"`
	Millis  int64    `json:"millis"`
	Manner  string   `json:"manner"`
	Who     string   `json:"who"`
	Seed    int64    `json:"seed"`
	Log     string   `json:"log"`
}

// hammer lets many goroutines add one to a counter under a lock, by reading and then writing it, and log when they
// held it.
//
// Each grant is a line of the log, `name who from to`, with the machine's monotonic clock: from after the lock was
// granted until before it is released. Our own workers write the same.
func hammer(order command) (any, error) {
	inner := clientOf(order)
	end := now() + order.Millis*int64(time.Millisecond)
	var refused atomic.Int64
	lines := make([][]string, order.Threads)
	failures := make([]error, order.Threads)
	var wait sync.WaitGroup
	for number := range order.Threads {
		wait.Go(func() {
			random := rand.New(rand.NewSource(order.Seed + int64(number)))
			for now() < end && failures[number] == nil {
				name := order.Names[random.Intn(len(order.Names))]
				line, err := inner.turn(order, name, number, random)
				failures[number] = err
				if line == "" {
					refused.Add(1)
				} else {
					lines[number] = append(lines[number], line)
				}
			}
		})
	}
	wait.Wait()
	if err := errors.Join(failures...); err != nil {
		return nil, err
	}
	grants, err := write(order.Log, lines)
	return map[string]int64{"grants": grants, "refused": refused.Load()}, err
}

// turn plays one turn and returns the line of its grant, if there is one. The ways to lock are spread over the goroutines.
func (c *client) turn(order command, name string, number int, random *rand.Rand) (string, error) {
	ctx := context.Background()
	tries := 1 << 30
	if number%4 == 3 {
		tries = 8
	}
	mutex := c.sync.NewMutex(name, redsync.WithExpiry(30*time.Second), redsync.WithTries(tries))
	locked := order.Manner != "unlocked"
	if locked {
		if err := mutex.Lock(); isRefusal(err) {
			return "", nil
		} else if err != nil {
			return "", err
		}
	}
	from := now()
	value, err := c.redis.Get(ctx, "counter:"+name).Int64()
	if err != nil && !errors.Is(err, redis.Nil) {
		return "", err
	}
	if random.Intn(16) == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := c.redis.Set(ctx, "counter:"+name, value+1, 0).Err(); err != nil {
		return "", err
	}
	to := now()
	if locked && number%4 == 2 {
		if _, err := mutex.Extend(); err != nil {
			return "", err
		}
	}
	if locked {
		if _, err := mutex.Unlock(); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%s %s/%d %d %d", name, order.Who, number, from, to), nil
}

func write(path string, lines [][]string) (grants int64, err error) {
	file, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	log := bufio.NewWriter(file)
	for _, lines := range lines {
		for _, line := range lines {
			fmt.Fprintln(log, line)
			grants++
		}
	}
	return grants, errors.Join(log.Flush(), file.Close())
}
