// Package guard has the Stores that the engine puts around the store that it is given. Each is a
// [protocol.Store] around another one, and passes the conformance suite over it. idem.New composes
// them; idem/DESIGN.md has their order and the reasons for it.
package guard

import (
	"context"
	"time"

	"github.com/idem-go/idempotency/idem/notice"
)

// Tell reports what a guard has done about a record to the engine's observer. Of n it sets what a
// record's id says.
type Tell func(ctx context.Context, kind notice.Kind, id string, n notice.Notice)

// Instant is a time by both clocks. The process may be frozen at any time, as Lambda does between
// invocations, and the monotonic clock may stand still then.
type Instant struct {
	monotonic time.Time
	wall      int64 // in milliseconds, which subtraction cannot take for monotonic
}

// RightNow is the time now.
func RightNow() Instant {
	now := time.Now()
	return Instant{now, now.UnixMilli()}
}

// Since is how long ago the other was, by the clock that says more.
func (i Instant) Since(other Instant) time.Duration {
	return max(i.monotonic.Sub(other.monotonic), time.Duration(i.wall-other.wall)*time.Millisecond)
}
