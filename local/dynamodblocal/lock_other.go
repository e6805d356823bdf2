//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package dynamodblocal

import "context"

// lock does nothing here: processes that fetch at once fetch twice, and the
// first to rename wins.
func lock(context.Context, settings, string) (unlock func(), err error) {
	return func() {}, nil
}
