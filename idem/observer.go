package idem

import (
	"context"
	"log/slog"
	"slices"

	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Observer gets a notice of what happens, on the caller's path: it must be quick, safe for concurrent
// use and not call the engine. A panic in it ends as an error in slog.Default. Kinds are
// added over time: it must ignore those it does not know. One that does nothing is silent.
type Observer func(ctx context.Context, n notice.Notice)

// Observers returns an observer that tells each of these. A nil one means the default.
func Observers(each ...Observer) Observer {
	all := slices.Clone(each)
	for i, o := range all {
		if o == nil {
			all[i] = logFrom(slog.LevelWarn, nil)
		}
	}
	if len(all) == 1 {
		return all[0]
	}
	return func(ctx context.Context, n notice.Notice) {
		for _, o := range all {
			o.tell(ctx, n)
		}
	}
}

// tell calls the observer, even if it panics.
func (o Observer) tell(ctx context.Context, n notice.Notice) {
	defer func() {
		if p := recover(); p != nil {
			defer func() { _ = recover() }() // of the logger, which may be what panicked
			slog.ErrorContext(ctx, "idem: an observer panicked; repair it, the operation continues", "error", protocol.RedactPanic("the observer", p), "record", n.ID)
		}
	}()
	o(ctx, n)
}
