package main

import (
	"context"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// The options of its README for one server that is new enough.
var rueidisLibrary = library{
	version: "rueidislock 1.0.79, KeyMajority 1, NoLoopTracking, TryNextAfter 20 s",
	connect: func(address string) (locker, error) {
		inner, err := rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption:   rueidis.ClientOption{InitAddress: []string{address}},
			KeyMajority:    1,
			NoLoopTracking: true,
			// After this long it ends a try and waits for an invalidation of the key, and its own deletion causes none: on
			// a busy machine its 20 ms leave a caller waiting for ever.
			TryNextAfter: 20 * time.Second,
			// The lease of the other contestants, so that renewals can be compared.
			KeyValidity:    30 * time.Second,
			ExtendInterval: 10 * time.Second,
		})
		return rueidisLocker{inner}, err
	},
}

type rueidisLocker struct {
	inner rueidislock.Locker
}

func (l rueidisLocker) acquire(ctx context.Context, name string) (func() error, error) {
	_, cancel, err := l.inner.WithContext(ctx, name)
	if err != nil {
		return nil, err
	}
	return func() error {
		cancel()
		return nil
	}, nil
}

func (l rueidisLocker) close() {
	l.inner.Close()
}
