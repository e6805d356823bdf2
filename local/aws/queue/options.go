package queue

import (
	"cmp"
	"fmt"
	"time"
)

// Options of [Start]. The zero value takes everything from the environment and
// the defaults.
type Options struct {
	// CacheDir is where the npm packages are kept, about 43 MB. It is created if
	// need be. Default: IDEM_CACHE_DIR, else "idem" in the user's cache folder
	// (os.UserCacheDir).
	CacheDir string

	// AnswerTimeout bounds the wait until the server listens, from the start of
	// its process. Default: 60 s. A negative one is an error.
	AnswerTimeout time.Duration

	// Log gets progress, one line a call without a newline. Default: nowhere.
	// It is called from the goroutine that called Start only.
	Log func(format string, args ...any)
}

func (o *Options) withDefaults() (Options, error) {
	var opts Options
	if o != nil {
		opts = *o
	}
	if opts.AnswerTimeout < 0 {
		return opts, fmt.Errorf("queue: AnswerTimeout is %v; it must not be negative (zero means the default)", opts.AnswerTimeout)
	}
	opts.AnswerTimeout = cmp.Or(opts.AnswerTimeout, time.Minute)
	if opts.Log == nil {
		opts.Log = func(string, ...any) {}
	}
	return opts, nil
}
