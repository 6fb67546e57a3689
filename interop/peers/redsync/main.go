// The real redsync, driven by lines of JSON: a command per line on stdin, a reply per line on stdout.
//
//	{"id":1,"thread":"t1","client":"t1","cmd":"lock","name":"x","lease":30000}
//	{"id":1,"result":"9SsF…","from":73412,"to":73978}
//	{"id":2,"error":"*net.OpError","message":"…","from":…,"to":…}
//
// Commands of one thread run one after the other; those of different threads at the same time. `from` and `to` are the
// machine's monotonic clock in nanoseconds. The process ends with its stdin, without cleaning up.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"sync"

	"golang.org/x/sys/unix"
)

// command is one line from the harness. Times are milliseconds.
type command struct {
	ID      uint64 `json:"id"`
	Cmd     string `json:"cmd"`
	Thread  string `json:"thread"`
	Client  string `json:"client"`
	Address string `json:"address"`
	// Addresses are those of several servers, for one lock on a majority of them; Patience is the timeout of each.
	Addresses []string `json:"addresses"`
	Patience  *int64   `json:"patience"`
	Name      string   `json:"name"`
	Lease     int64    `json:"lease"`
	// Wait is nil for a single request.
	Wait *int64 `json:"wait"`
	work
}

type answer struct {
	ID      uint64 `json:"id"`
	Result  any    `json:"result"`
	Error   string `json:"error,omitempty"`
	Message string `json:"message,omitempty"`
	From    int64  `json:"from"`
	To      int64  `json:"to"`
}

// deed is the handler of a command; its value is the result in the reply.
type deed func(command) (any, error)

var deeds = map[string]deed{
	"clock":    func(command) (any, error) { return now(), nil },
	"close":    closeClient,
	"connect":  connect,
	"exit":     func(command) (any, error) { return nil, closeAll() },
	"extend":   extend,
	"hammer":   hammer,
	"is_mine":  isMine,
	"library":  func(command) (any, error) { return library() },
	"lock":     lock,
	"look":     look,
	"try_lock": tryLock,
	"unlock":   unlock,
}

func main() {
	threads := map[string]chan command{}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var order command
		if err := json.Unmarshal(lines.Bytes(), &order); err != nil {
			panic(err)
		}
		if order.Cmd == "halt" {
			// Dies as a killed process does: without a release, without a notification.
			os.Exit(137)
		}
		if threads[order.Thread] == nil {
			threads[order.Thread] = make(chan command, 16)
			go perform(threads[order.Thread])
		}
		threads[order.Thread] <- order
	}
}

var speaking sync.Mutex

func perform(orders chan command) {
	for order := range orders {
		said := answer{ID: order.ID, From: now()}
		result, err := any(nil), fmt.Errorf("there is no command `%s`", order.Cmd)
		if deed := deeds[order.Cmd]; deed != nil {
			result, err = deed(order)
		}
		said.To = now()
		said.Result = result
		if err != nil {
			said.Error, said.Message = fmt.Sprintf("%T", err), err.Error()
		}
		line, err := json.Marshal(said)
		if err != nil {
			panic(err)
		}
		speaking.Lock()
		os.Stdout.Write(append(line, '\n'))
		speaking.Unlock()
		if order.Cmd == "exit" {
			os.Exit(0)
		}
	}
}

// library returns the version that was linked.
func library() (string, error) {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "github.com/go-redsync/redsync/v4" {
			return "redsync " + module.Version[1:], nil
		}
	}
	return "", fmt.Errorf("redsync is not among %v", info.Deps)
}

// now returns the machine's monotonic clock.
func now() int64 {
	var time unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &time); err != nil {
		panic(err)
	}
	return time.Nano()
}
