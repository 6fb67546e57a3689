package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	pool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// client is one connection pool for each server, and the mutexes acquired through them, by thread and name.
type client struct {
	// redis is the client of the first server.
	redis   *redis.Client
	all     []*redis.Client
	sync    *redsync.Redsync
	guard   sync.Mutex
	mutexes map[[2]string]*redsync.Mutex
}

var (
	clients = map[string]*client{}
	// guard protects the map above.
	guard sync.Mutex
)

// between is how long a waiter with a timeout pauses between tries; one without has redsync's default, 50 to 250 ms.
const between = 100 * time.Millisecond

func connect(order command) (any, error) {
	addresses := order.Addresses
	if order.Address != "" {
		addresses = []string{order.Address}
	}
	var all []*redis.Client
	var pools []redsyncredis.Pool
	for _, address := range addresses {
		options, err := redis.ParseURL(address)
		if err != nil {
			return nil, err
		}
		if len(addresses) > 1 {
			impatient(options, order.Patience)
		}
		inner := redis.NewClient(options)
		if err := inner.Ping(context.Background()).Err(); err != nil {
			return nil, err
		}
		all = append(all, inner)
		pools = append(pools, pool.NewPool(inner))
	}
	guard.Lock()
	defer guard.Unlock()
	clients[order.Client] = &client{
		redis:   all[0],
		all:     all,
		sync:    redsync.New(pools...),
		mutexes: map[[2]string]*redsync.Mutex{},
	}
	return true, nil
}

// impatient makes go-redis respect the timeout that redsync sets for each server, and time out soon where redsync sets none:
// a server that hangs must not delay the others.
func impatient(options *redis.Options, millis *int64) {
	patience := 2 * time.Second
	if millis != nil {
		patience = time.Duration(*millis) * time.Millisecond
	}
	options.ContextTimeoutEnabled = true
	options.DialTimeout = patience
	options.ReadTimeout = patience
	options.WriteTimeout = patience
	options.MaxRetries = -1
}

// close closes all connections.
func (c *client) close() error {
	var all error
	for _, inner := range c.all {
		all = errors.Join(all, inner.Close())
	}
	return all
}

func closeClient(order command) (any, error) {
	inner := clientOf(order)
	guard.Lock()
	defer guard.Unlock()
	delete(clients, order.Client)
	return true, inner.close()
}

func closeAll() error {
	guard.Lock()
	defer guard.Unlock()
	var all error
	for _, inner := range clients {
		all = errors.Join(all, inner.close())
	}
	return all
}

func clientOf(order command) *client {
	guard.Lock()
	defer guard.Unlock()
	inner := clients[order.Client]
	if inner == nil {
		panic(fmt.Sprintf("there is no client `%s`; connect first", order.Client))
	}
	return inner
}

func (c *client) held(order command) *redsync.Mutex {
	c.guard.Lock()
	defer c.guard.Unlock()
	return c.mutexes[[2]string{order.Thread, order.Name}]
}

// take acquires the lock with the tries of the options, and returns the value of the key, or nil if another client holds the lock.
func (c *client) take(order command, options ...redsync.Option) (any, error) {
	expiry := redsync.WithExpiry(time.Duration(order.Lease) * time.Millisecond)
	mutex := c.sync.NewMutex(order.Name, append(options, expiry)...)
	if err := mutex.Lock(); err != nil {
		if isRefusal(err) {
			return nil, nil
		}
		return nil, err
	}
	c.guard.Lock()
	defer c.guard.Unlock()
	c.mutexes[[2]string{order.Thread, order.Name}] = mutex
	return mutex.Value(), nil
}

func lock(order command) (any, error) {
	return clientOf(order).take(order, redsync.WithTries(math.MaxInt))
}

func tryLock(order command) (any, error) {
	tries := 1
	if order.Wait != nil {
		tries += int(time.Duration(*order.Wait) * time.Millisecond / between)
	}
	return clientOf(order).take(order, redsync.WithTries(tries), redsync.WithRetryDelay(between))
}

// unlock returns nil, or why it was refused.
func unlock(order command) (any, error) {
	_, err := clientOf(order).held(order).Unlock()
	return refusal(err)
}

// extend returns nil, or why it was refused. The new lease is as long as that of the mutex.
func extend(order command) (any, error) {
	_, err := clientOf(order).held(order).Extend()
	return refusal(err)
}

func isMine(order command) (any, error) {
	mutex := clientOf(order).held(order)
	if mutex == nil {
		return false, nil
	}
	return mutex.Valid()
}

// look returns the state of the lock in the store, read through this library's client.
func look(order command) (any, error) {
	inner, ctx := clientOf(order).redis, context.Background()
	kind, err := inner.Type(ctx, order.Name).Result()
	if err != nil {
		return nil, err
	}
	left, err := inner.PTTL(ctx, order.Name).Result()
	if err != nil {
		return nil, err
	}
	// go-redis has no milliseconds for replies without a time.
	millis := left.Milliseconds()
	if left < 0 {
		millis = int64(left)
	}
	value, err := inner.Get(ctx, order.Name).Result()
	if errors.Is(err, redis.Nil) {
		return map[string]any{"type": kind, "value": nil, "left": millis, "locked": false}, nil
	}
	return map[string]any{"type": kind, "value": value, "left": millis, "locked": true}, err
}

func refusal(err error) (any, error) {
	if isRefusal(err) {
		return err.Error(), nil
	}
	return nil, err
}

// isRefusal reports whether the key is another client's, or gone, as opposed to servers that could not say.
func isRefusal(err error) bool {
	var taken *redsync.ErrTaken
	var node *redsync.ErrNodeTaken
	return errors.As(err, &taken) || errors.As(err, &node) || errors.Is(err, redsync.ErrLockAlreadyExpired)
}
