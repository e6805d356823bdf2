package idemhttp

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem"
)

// Defaults of a client.
const (
	// DefaultMaxAttempts is how often a request is sent at most.
	DefaultMaxAttempts = 5
	// DefaultBackoff is the greatest random delay before the second attempt.
	DefaultBackoff = 200 * time.Millisecond
	// DefaultMaxBackoff is the greatest random delay before any attempt.
	DefaultMaxBackoff = 10 * time.Second
	// DefaultMaxWait is how long a service's Retry-After is waited for at most.
	DefaultMaxWait = time.Minute
	// DefaultMaxBody is how many bytes of a body are buffered.
	DefaultMaxBody = 1 << 20

	// maxDelay keeps sums of delays in range; no call waits that long.
	maxDelay = 24 * time.Hour
)

// ClientOptions of a [Transport]. Zero fields mean the defaults.
type ClientOptions struct {
	// KeyHeader is the name of the key's header. Empty means [DefaultKeyHeader].
	KeyHeader string

	// Methods get a key. Empty means POST and PATCH.
	Methods []string

	// FirstSentHeader is the name of a header for the time at which the request
	// was first sent, in RFC 3339, see [MaxAge.Header]. A value that the caller set
	// stays. Empty means no header: the keys that a Transport makes contain their time.
	FirstSentHeader string

	// MaxAttempts is how often a logical request is sent, without redirects; 1 means that
	// it is never repeated. Zero means [DefaultMaxAttempts]. While the first request
	// runs, repeats get 409: the attempts' delays together should be longer
	// than the longest request.
	MaxAttempts int

	// Backoff and MaxBackoff limit the random delay before an attempt, which is between
	// zero and a limit (full jitter). The limit is Backoff before the second attempt and
	// doubles up to MaxBackoff, which is at most 24 hours. Zero means [DefaultBackoff] and
	// [DefaultMaxBackoff].
	Backoff, MaxBackoff time.Duration

	// MaxWait is the longest that the Transport waits for a Retry-After. After an answer with
	// a longer one the request is sent again when MaxWait is over: sooner than the service
	// asked, but not more often than MaxAttempts. Zero means [DefaultMaxWait].
	MaxWait time.Duration

	// Retention is how long the service keeps an outcome at least. A key is not sent when
	// this time has passed since it was first sent, or after the Idempotency-Expires of an
	// answer. Zero means [idem.DefaultRetention], 24 hours. If it is longer than the
	// service's own, a late attempt may execute the request again.
	Retention time.Duration

	// MaxBody is how many bytes of a body without GetBody are buffered before the
	// first attempt. A longer one is streamed and sent once. Zero means
	// [DefaultMaxBody]; negative means that no body is buffered. Use that for a body whose
	// end depends on the answer.
	MaxBody int64
}

// check returns the options with their defaults, or what is wrong with them.
func (o *ClientOptions) check() (ClientOptions, error) {
	var out ClientOptions
	if o != nil {
		out = *o
	}
	invalid := func(format string, args ...any) (ClientOptions, error) {
		return out, &idem.ConfigError{What: "HTTP client", Problem: fmt.Sprintf(format, args...)}
	}
	out.KeyHeader = cmp.Or(out.KeyHeader, DefaultKeyHeader)
	out.MaxAttempts = cmp.Or(out.MaxAttempts, DefaultMaxAttempts)
	out.MaxBackoff = cmp.Or(out.MaxBackoff, max(DefaultMaxBackoff, out.Backoff))
	out.Backoff = cmp.Or(out.Backoff, min(DefaultBackoff, out.MaxBackoff))
	out.MaxWait = cmp.Or(out.MaxWait, DefaultMaxWait)
	out.Retention = cmp.Or(out.Retention, idem.DefaultRetention)
	out.MaxBody = cmp.Or(out.MaxBody, DefaultMaxBody)
	methods, problem := keyedMethods(out.Methods)
	out.Methods = methods
	switch {
	case problem != "":
		return invalid("%s", problem)
	case !isToken(out.KeyHeader):
		return invalid("KeyHeader %q is not a header name", out.KeyHeader)
	case out.FirstSentHeader != "" && !isToken(out.FirstSentHeader):
		return invalid("FirstSentHeader %q is not a header name", out.FirstSentHeader)
	case strings.EqualFold(out.FirstSentHeader, out.KeyHeader):
		return invalid("FirstSentHeader and KeyHeader are both %q: use two headers", out.KeyHeader)
	case out.MaxAttempts < 0:
		return invalid("MaxAttempts is %d: use 1 or more, or zero for %d", out.MaxAttempts, DefaultMaxAttempts)
	case out.Backoff < 0 || out.MaxBackoff < out.Backoff || out.MaxBackoff > maxDelay:
		return invalid("Backoff is %v and MaxBackoff %v: use 0 < Backoff <= MaxBackoff <= %v, or zero for %v and %v",
			out.Backoff, out.MaxBackoff, maxDelay, DefaultBackoff, DefaultMaxBackoff)
	case out.MaxWait < 0 || out.MaxWait > maxDelay:
		return invalid("MaxWait is %v: use a positive duration up to %v, or zero for %v", out.MaxWait,
			maxDelay, DefaultMaxWait)
	case out.Retention < 0:
		return invalid("Retention is %v: use the service's, or zero for %v", out.Retention, idem.DefaultRetention)
	}
	return out, nil
}

// upTo is a random duration from zero to max.
func upTo(max time.Duration) time.Duration { return rand.N(max + 1) }
