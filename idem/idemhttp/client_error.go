package idemhttp

import (
	"errors"
	"fmt"
	"time"
)

// SendError says that a logical request got no answer to return: it may have taken effect
// or not. To send the request again in a later call, use its key and time with [WithKey]
// and [WithFirstSent]. It unwraps to the last error.
//
// If [http.Client.Timeout] ends the request, [http.Client] hides the SendError behind an
// error of its own: use a context's deadline, or set the key yourself.
type SendError struct {
	// Key of the request, empty if its method needs none.
	Key string
	// FirstSent is when the request was first sent.
	FirstSent time.Time
	// Attempts is how often it was sent, redirects included.
	Attempts int
	// Status of the last attempt's answer; zero if it had none.
	Status int
	// Location is the URL that [Transport.Await] asked last; empty after a request.
	Location string
	// Err is the last error: the connection's, or the context's while waiting.
	Err error
}

func (e *SendError) Error() string {
	last := ""
	if e.Status != 0 {
		last = fmt.Sprintf(", last status: %d", e.Status)
	}
	advice := ""
	if e.Key != "" {
		advice = "; send the request again with the same key only (SendError.Key)"
	}
	return fmt.Sprintf("idemhttp: no answer (attempts: %d%s): %v%s", e.Attempts, last, e.Err, advice)
}

// Unwrap returns Err.
func (e *SendError) Unwrap() error { return e.Err }

// Timeout reports whether Err was a time-out, as [net.Error] does.
func (e *SendError) Timeout() bool {
	var t interface{ Timeout() bool }
	return errors.As(e.Err, &t) && t.Timeout()
}

func (s *sending) failed(err error) *SendError {
	e := &SendError{FirstSent: s.firstSent, Attempts: s.attempts, Status: s.status, Err: err}
	if s.keyed {
		e.Key = s.key
	}
	return e
}
