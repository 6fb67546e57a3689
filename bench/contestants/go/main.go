// The Go contestants: redsync and rueidislock. They receive their work as lines of JSON, described in bench/src/line.rs.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// work is a work order of the orchestrator.
type work struct {
	URL     string  `json:"url"`
	Job     string  `json:"job"`
	Callers int     `json:"callers"`
	Names   int     `json:"names"`
	Seconds float64 `json:"seconds"`
	Warmup  float64 `json:"warmup"`
}

type answer map[string]any

// locker is one client, shared by all callers.
type locker interface {
	// acquire waits for the lock until the context ends; the function it returns releases the lock.
	acquire(ctx context.Context, name string) (func() error, error)
	close()
}

// library describes how a locker is made, and which work it does not support.
type library struct {
	version string
	cannot  map[string]string
	connect func(address string) (locker, error)
}

var libraries = map[string]library{
	"redsync":     redsyncLibrary,
	"rueidislock": rueidisLibrary,
}

var lines = bufio.NewScanner(os.Stdin)

func main() {
	if len(os.Args) != 2 || libraries[os.Args[1]].connect == nil {
		fmt.Fprintln(os.Stderr, "usage: contestant redsync|rueidislock")
		os.Exit(64)
	}
	library := libraries[os.Args[1]]
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var order work
		if err := json.Unmarshal(lines.Bytes(), &order); err != nil {
			say(answer{"failed": err.Error()})
			continue
		}
		if why := library.cannot[order.Job]; why != "" {
			say(answer{"cannot": why})
			continue
		}
		if err := perform(library, order); err != nil {
			say(answer{"failed": err.Error()})
		}
	}
}

func perform(library library, order work) error {
	var address string
	if _, err := fmt.Sscanf(order.URL, "redis://%s", &address); err != nil {
		return err
	}
	locker, err := library.connect(address[:len(address)-1])
	if err != nil {
		return err
	}
	defer locker.close()
	ready := func() {
		say(answer{"ready": true, "version": library.version})
		lines.Scan() // go
	}
	few := order
	few.Callers = min(order.Callers, 64)
	few.Names = few.Callers
	switch order.Job {
	case "cycle":
		if _, err := cycle(locker, order, order.Warmup); err != nil {
			return err
		}
		ready()
		tally, err := cycle(locker, order, order.Seconds)
		if err != nil {
			return err
		}
		say(tally)
	case "hold":
		if _, err := cycle(locker, few, order.Warmup); err != nil {
			return err
		}
		ready()
		return hold(locker, order)
	case "queue":
		if _, err := cycle(locker, few, order.Warmup); err != nil {
			return err
		}
		ready()
		return queue(locker, order)
	case "step":
		ready()
		return steps(locker)
	default:
		say(answer{"cannot": "does not know " + order.Job})
	}
	return nil
}

func say(said answer) {
	line, err := json.Marshal(said)
	if err != nil {
		panic(err)
	}
	os.Stdout.Write(append(line, '\n'))
}

func name(number int) string {
	return fmt.Sprintf("bench:%d", number)
}

func duration(seconds float64) time.Duration {
	return time.Duration(seconds * float64(time.Second))
}
