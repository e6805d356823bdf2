package idem

import (
	"context"

	"github.com/idem-go/idempotency/idem/notice"
)

// Observer is told what happens, for metrics and logs. It runs on the caller's path:
// it should be quick, must be safe for concurrent use and must not call the engine. A
// panic in it ends there, as an error in [slog.Default]: no metric may cost an
// outcome. Kinds are added over time, so an observer ignores those it does not know.
type Observer func(ctx context.Context, n notice.Notice)
