//go:build !linux

package main

import "context"

// newEpoll is absent here: what other systems have in epoll's place is another floor.
var newEpoll func(context.Context, *Web, int) (Run, error)
