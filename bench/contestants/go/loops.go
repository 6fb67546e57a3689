package main

import (
	"context"
	"fmt"
	"math/bits"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// cycle lets every caller lock and unlock until time is up.
func cycle(locker locker, order work, seconds float64) (answer, error) {
	var over atomic.Bool
	var wait sync.WaitGroup
	var failure atomic.Value
	finished := make([]uint64, order.Callers)
	took := make([][]int64, order.Callers)
	var holder, handoffs, stuck atomic.Int64
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	began := time.Now()
	for caller := range order.Callers {
		wait.Go(func() {
			names := namesOf(caller, order)
			for !over.Load() {
				name := names()
				began := time.Now()
				release, err := locker.acquire(ctx, name)
				if ctx.Err() != nil {
					stuck.Add(1)
					return
				}
				passed := err == nil && order.Names == 1 && holder.Swap(int64(caller)+1) != int64(caller)+1
				if err == nil {
					err = release()
				}
				if err != nil {
					failure.Store(err)
					return
				}
				span := time.Since(began)
				finished[caller]++
				if !over.Load() {
					took[caller] = append(took[caller], int64(span))
					if passed {
						handoffs.Add(1)
					}
				}
			}
		})
	}
	time.Sleep(duration(seconds))
	over.Store(true)
	span := time.Since(began)
	// rueidislock waits for invalidations of the key and for nothing else: one that is missed leaves its waiters waiting for ever.
	late := time.AfterFunc(grace, cancel)
	wait.Wait()
	late.Stop()
	if count := stuck.Load(); count > 0 {
		fmt.Fprintf(os.Stderr, "%d of %d callers still waited %v after the end\n", count, order.Callers, grace)
	}
	if err := failure.Load(); err != nil {
		return nil, err.(error)
	}
	tally := sum(finished, took, span)
	tally["handoffs"] = handoffs.Load()
	return tally, nil
}

// grace is far longer than a wait that is going to end.
const grace = 3 * time.Second

// namesOf returns the names a caller goes through, over and over.
func namesOf(caller int, order work) func() string {
	if order.Names == 1 || order.Names == order.Callers {
		only := name(0)
		if order.Names != 1 {
			only = name(caller)
		}
		return func() string { return only }
	}
	each := order.Names / order.Callers
	next := 0
	return func() string {
		number := caller*each + next
		next = (next + 1) % each
		return name(number)
	}
}

func sum(finished []uint64, took [][]int64, span time.Duration) answer {
	buckets := map[int]uint64{}
	var cycles, all uint64
	least, most := ^uint64(0), uint64(0)
	for caller := range took {
		count := uint64(len(took[caller]))
		cycles += count
		all += finished[caller]
		least, most = min(least, count), max(most, count)
		for _, nanos := range took[caller] {
			shift := max(0, bits.Len64(uint64(max(nanos, 1)))-8)
			buckets[shift*128+int(nanos>>shift)]++
		}
	}
	latency := make([][2]uint64, 0, len(buckets))
	for bucket, count := range buckets {
		latency = append(latency, [2]uint64{uint64(bucket), count})
	}
	return answer{
		"cycles": cycles, "finished": all, "seconds": span.Seconds(),
		"latency": latency, "least": least, "most": most,
	}
}

// hold acquires every name and keeps it until the orchestrator orders the release.
func hold(locker locker, order work) error {
	var wait sync.WaitGroup
	var failure atomic.Value
	for caller := range order.Callers {
		wait.Go(func() {
			for number := caller; number < order.Names; number += order.Callers {
				if _, err := locker.acquire(context.Background(), name(number)); err != nil {
					failure.Store(err)
					return
				}
			}
		})
	}
	wait.Wait()
	if err := failure.Load(); err != nil {
		return err.(error)
	}
	say(answer{"held": order.Names})
	lines.Scan() // end
	// The orchestrator counts the locks on the server.
	say(answer{"lost": 0})
	return nil
}

// queue lets every caller hold one name once.
func queue(locker locker, order work) error {
	var wait sync.WaitGroup
	var failure atomic.Value
	var first atomic.Int64
	for range order.Callers {
		wait.Go(func() {
			release, err := locker.acquire(context.Background(), name(0))
			if err == nil {
				first.CompareAndSwap(0, now())
				err = release()
			}
			if err != nil {
				failure.Store(err)
			}
		})
	}
	say(answer{"waiting": order.Callers})
	wait.Wait()
	if err := failure.Load(); err != nil {
		return err.(error)
	}
	span := time.Duration(now() - first.Load())
	say(answer{
		"cycles": order.Callers, "finished": order.Callers, "seconds": span.Seconds(),
		"latency": [][2]uint64{}, "least": 1, "most": 1,
	})
	return nil
}

// steps acquires and releases one lock as ordered, and reports when.
func steps(locker locker) error {
	var release func() error
	for lines.Scan() {
		var at int64
		var err error
		switch word := lines.Text(); word {
		case "lock":
			release, err = locker.acquire(context.Background(), name(0))
			at = now()
		case "unlock":
			at = now()
			err = release()
		case "end":
			return nil
		default:
			err = fmt.Errorf("not a step: %s", word)
		}
		if err != nil {
			return err
		}
		say(answer{"at": at})
	}
	return nil
}

// now returns the machine's monotonic clock, the time axis of all contestants.
func now() int64 {
	var time unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &time); err != nil {
		panic(err)
	}
	return time.Nano()
}
