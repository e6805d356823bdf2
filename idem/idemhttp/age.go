package idemhttp

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"net/http"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem"
)

// DefaultTolerance is how far the clocks of clients may be off.
const DefaultTolerance = 5 * time.Minute

// MaxAge says where a request has the time at which it was first sent, and how old it may be.
// A request that is older is answered from its record if there is one. If there is none,
// it is refused with 412 idempotency_key_too_old, and nothing is executed or claimed.
// Without MaxAge a retry that comes after its record has expired is executed again.
//
// The time is the key's own if the key is a UUIDv7 (RFC 9562) or a ULID (26
// characters of Crockford's alphabet), or comes in a header. A time in the future beyond
// the tolerance is refused with 400, since the age is then unknown. Random keys in that alphabet, such
// as a UUIDv4 of 26 characters, have a time too: one in some hundreds is refused for it. Clients with such
// keys need a Header.
type MaxAge struct {
	// Header is the name of a header with the time at which the request was first sent, the
	// same on every retry: an HTTP date (RFC 9110 5.6.7) or RFC 3339. Empty means
	// the key's own time.
	Header string

	// After is the age beyond which a request is too old. Zero means the operation's
	// retention, which it cannot exceed.
	After time.Duration

	// Tolerance is how far the client's clock may be off; requests are refused earlier
	// by that time. Zero means [DefaultTolerance]; it must be less than After.
	Tolerance time.Duration

	// Require refuses, with 400, requests of unknown age. Without it they
	// are served as if MaxAge were nil.
	Require bool
}

// check returns a copy with its defaults, or what is wrong.
func (t *MaxAge) check() (*MaxAge, error) {
	if t == nil {
		return nil, nil
	}
	out := *t
	switch {
	case out.Header != "" && !isToken(out.Header):
		return nil, mistake("MaxAge.Header %q is not a header name", out.Header)
	case out.After < 0 || out.Tolerance < 0:
		return nil, mistake("MaxAge has a negative time")
	}
	out.Tolerance = cmp.Or(out.Tolerance, DefaultTolerance)
	return &out, nil
}

// fits reports a window that an operation's retention does not cover.
func (t *MaxAge) fits(op idem.Operation) error {
	if t == nil {
		return nil
	}
	if kept := retention(op); t.After > kept {
		return mistake("MaxAge.After is %v and operation %q is kept for %v only: a request in between would be "+
			"executed again", t.After, op.Name, kept)
	}
	if window := t.window(op); t.Tolerance >= window {
		return mistake("MaxAge.Tolerance is %v and operation %q takes requests for %v only: every request would be refused",
			t.Tolerance, op.Name, window)
	}
	return nil
}

func (t *MaxAge) window(op idem.Operation) time.Duration {
	return cmp.Or(t.After, retention(op))
}

func retention(op idem.Operation) time.Duration { return cmp.Or(op.Retention, idem.DefaultRetention) }

// refuses says why a request must not be executed at now; nil if it may be.
func (t *MaxAge) refuses(r *Request, key string, op idem.Operation, now time.Time) *situation {
	if t == nil {
		return nil
	}
	first, known, why := t.firstSent(r, key, now)
	switch {
	case why != "":
		return &situation{code: CodeKeyInvalid, why: why}
	case !known && t.Require:
		return &situation{code: CodeKeyInvalid, why: t.asks()}
	case !known:
		return nil
	case first.After(now.Add(t.Tolerance)):
		return &situation{code: CodeKeyInvalid,
			why: "the time at which the request was first sent lies in the future; check the client's clock"}
	case now.Sub(first) > t.window(op)-t.Tolerance:
		return &situation{code: CodeKeyTooOld}
	}
	return nil
}

func (t *MaxAge) asks() string {
	if t.Header != "" {
		return "send the time at which the request was first sent in the header " + t.Header
	}
	return "use a UUIDv7 or a ULID, which tell when they were made"
}

// firstSent reads when the request was first sent; why is set if it cannot be read.
func (t *MaxAge) firstSent(r *Request, key string, now time.Time) (first time.Time, known bool, why string) {
	if t.Header == "" {
		first, known = keyTime(key, now)
		return first, known, ""
	}
	values := r.header(t.Header)
	if len(values) == 0 {
		return first, false, ""
	}
	if len(values) == 1 {
		text := strings.Trim(values[0], " \t")
		for _, read := range []func(string) (time.Time, error){http.ParseTime, rfc3339} {
			if first, err := read(text); err == nil {
				return first, true, ""
			}
		}
	}
	return first, false, "the header " + t.Header + " is not one HTTP date or RFC 3339 time"
}

func rfc3339(text string) (time.Time, error) { return time.Parse(time.RFC3339, text) }

// keyTime reads the time in a UUIDv7 or a ULID.
func keyTime(key string, now time.Time) (time.Time, bool) {
	switch len(key) {
	case 36:
		return uuidTime(key)
	case 26:
		return ulidTime(key, now)
	}
	return time.Time{}, false
}

// uuidTime reads xxxxxxxx-xxxx-7xxx-Vxxx-xxxxxxxxxxxx, whose first 48 bits are
// milliseconds since 1970 (RFC 9562 5.7).
func uuidTime(key string) (time.Time, bool) {
	if key[8] != '-' || key[13] != '-' || key[18] != '-' || key[23] != '-' || key[14] != '7' ||
		strings.IndexByte("89abAB", key[19]) < 0 {
		return time.Time{}, false
	}
	raw, err := hex.DecodeString(strings.ReplaceAll(key, "-", ""))
	if err != nil || len(raw) != 16 {
		return time.Time{}, false
	}
	return time.UnixMilli(int64(binary.BigEndian.Uint64(raw) >> 16)), true
}

// crockford is the alphabet of ULIDs.
const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// ulidTime reads 26 characters of 5 bits each, whose first ten are milliseconds since 1970. Nothing
// else tells a ULID from random characters, whose times are mostly centuries ahead. A clock that is wrong
// is not so far ahead: its key must stay refused, also when its record has expired.
func ulidTime(key string, now time.Time) (time.Time, bool) {
	ms := int64(0)
	for i := 0; i < len(key); i++ {
		c := key[i]
		if 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		digit := strings.IndexByte(crockford, c)
		if digit < 0 || i == 0 && digit > 7 {
			return time.Time{}, false
		}
		if i < 10 {
			ms = ms<<5 | int64(digit)
		}
	}
	at := time.UnixMilli(ms)
	return at, !at.Before(firstULID) && at.Before(now.AddDate(10, 0, 0))
}

var firstULID = time.Date(2016, 1, 1, 0, 0, 0, 0, time.UTC)
