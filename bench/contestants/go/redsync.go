package main

import (
	"context"
	"math"
	"time"

	"github.com/go-redsync/redsync/v4"
	pool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// redsync over go-redis, as in its README. The retry delay is its default (50 to 250 ms), and it may try as often as it
// takes.
var redsyncLibrary = library{
	version: "redsync 4.18.1 over go-redis 9.23.0",
	cannot:  map[string]string{"hold": "does not renew", "queue": "polls"},
	connect: func(address string) (locker, error) {
		// A caller of a crowd waits for a connection; the default timeout of a few seconds is too short for a crowd.
		client := redis.NewClient(&redis.Options{Addr: address, PoolSize: 64, PoolTimeout: time.Minute})
		return redsyncLocker{client, redsync.New(pool.NewPool(client))}, nil
	},
}

type redsyncLocker struct {
	client *redis.Client
	sync   *redsync.Redsync
}

func (l redsyncLocker) acquire(ctx context.Context, name string) (func() error, error) {
	mutex := l.sync.NewMutex(name, redsync.WithExpiry(30*time.Second), redsync.WithTries(math.MaxInt))
	if err := mutex.LockContext(ctx); err != nil {
		return nil, err
	}
	return func() error {
		_, err := mutex.Unlock()
		return err
	}, nil
}

func (l redsyncLocker) close() {
	l.client.Close()
}
