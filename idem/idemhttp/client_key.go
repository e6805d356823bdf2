package idemhttp

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem"
)

type (
	withKey       struct{}
	withFirstSent struct{}
	sendingKey    struct{}
)

// WithKey sets the key of the one logical request that is sent under the context. Use it
// if the key must outlive the call: make the key with [NewKey] and save it together with
// the subject of the request, or derive it from the subject with [DeriveKey]. A second,
// different request under the same context is refused as a reuse.
//
// A key outside the contract's grammar (letters, digits and - . _ ~ : at most
// [MaxKey] of them) is an error when the request is sent, and so is another key in
// the request's header. Services also refuse keys that are too short for them.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, withKey{}, key)
}

// WithFirstSent says when the logical request under the context was first sent, if that
// was in an earlier call: the retention window counts from that time. Use it together with
// [WithKey], or a late attempt may be executed again.
func WithFirstSent(ctx context.Context, at time.Time) context.Context {
	return context.WithValue(ctx, withFirstSent{}, at)
}

// KeyOf returns the key under which the request of a response was sent by a
// [Transport]; empty if there was none.
func KeyOf(res *http.Response) string {
	if res == nil || res.Request == nil {
		return ""
	}
	if s := sendingOf(res.Request); s != nil && s.keyed {
		return s.key
	}
	return ""
}

// NewKey returns a random key: a UUIDv7 (RFC 9562 5.7) with 74 random bits and the current
// time in milliseconds, by which a service can refuse a request that comes too late
// ([MaxAge]).
func NewKey() string { return uuid7(time.Now()) }

func uuid7(now time.Time) string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, see its documentation
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(now.UnixMilli()))
	copy(b[:6], ms[2:])
	b[6] = b[6]&0x0f | 0x70
	b[8] = b[8]&0x3f | 0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// sending is the state of a logical request while it is sent.
type sending struct {
	keyed bool
	key   string
	// made is set if the key is this Transport's own; host is the host that it is for.
	made bool
	host string
	// from is how the request was sent to the host that redirected it to this one.
	from *sending
	// away is set if the request is redirected to a host that must not see its key. A request
	// that needs one is then sent once.
	away, once bool
	firstSent  time.Time
	// expires is when the key may be forgotten, by the client's clock.
	expires time.Time
	// attempts counts all requests, retries the repeated ones. The others are the first
	// request and redirects.
	attempts, retries int
	// here is the count of attempts when this redirect began.
	here int
	// status is the last answer's, zero for none.
	status int
}

func sendingOf(req *http.Request) *sending {
	s, _ := req.Context().Value(sendingKey{}).(*sending)
	return s
}

// sent reports whether this redirect was sent already.
func (s *sending) sent() bool { return s.attempts > s.here }

// begin finds the logical request to which this one belongs, or starts one.
func (t *Transport) begin(req *http.Request, keyed bool) (*sending, error) {
	now := t.now()
	s := &sending{firstSent: now}
	if before := req.Response; before != nil && before.Request != nil {
		// http.Client makes a redirect's request from the caller's, which does not have
		// our key, and sets its Response to the one that redirected.
		if earlier := sendingOf(before.Request); earlier != nil {
			*s = *earlier
			s.away = s.key != "" && !isWithin(req.URL.Hostname(), s.host)
			if s.away && s.made && keyed {
				s = earlier.elsewhere(req.URL.Hostname(), now)
			}
		}
	}
	s.keyed, s.once, s.here, s.status = keyed && !s.away, keyed && s.away, s.attempts, 0
	if !s.keyed {
		return s, nil
	}
	if s.host == "" {
		s.host = req.URL.Hostname()
	}
	if err := s.choose(req, t.opts.KeyHeader, now); err != nil {
		return nil, err
	}
	if at, ok := req.Context().Value(withFirstSent{}).(time.Time); ok {
		s.firstSent = at
	}
	if end := s.firstSent.Add(t.opts.Retention); s.expires.IsZero() || end.Before(s.expires) {
		s.expires = end
	}
	if !now.Before(s.expires) {
		return nil,
			fmt.Errorf("%w: first sent %s, not sent any more from %s on (Idempotency-Expires or ClientOptions.Retention)",
				ErrKeyExpired, s.firstSent.UTC().Format(time.RFC3339), s.expires.UTC().Format(time.RFC3339))
	}
	return s, nil
}

// elsewhere is the request to a host that must not see its key. It has the key that the
// host got before, since the host may have executed the request, or a new key.
func (s *sending) elsewhere(host string, now time.Time) *sending {
	next := sending{firstSent: now}
	for before := s.from; before != nil; before = before.from {
		if isWithin(host, before.host) {
			next = *before
			break
		}
	}
	next.from, next.attempts, next.retries = s, s.attempts, s.retries
	return &next
}

// isWithin reports whether a host is the other one or below it. [http.Client] sends a
// request's credentials to the same hosts.
func isWithin(host, other string) bool {
	if strings.EqualFold(host, other) {
		return true
	}
	// An address is never below a host, whatever the zone of an IPv6 address ends with.
	return !strings.ContainsAny(host, ":%") && len(host) > len(other) &&
		strings.EqualFold(host[len(host)-len(other)-1:], "."+other)
}

// choose sets the key: the header's, else the context's, else the one from before a
// redirect, else a new one. A header that the caller set is sent unchanged: not every
// service has this contract's grammar.
func (s *sending) choose(req *http.Request, header string, now time.Time) error {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{idem.ErrKeyInvalid}, args...)...)
	}
	var given []string
	for name, values := range req.Header { // in any spelling: they may be set past Header.Set
		if strings.EqualFold(name, header) {
			given = append(given, values...)
		}
	}
	wanted, set := req.Context().Value(withKey{}).(string)
	switch {
	case len(given) > 1:
		return invalid("the request has %d %s headers: set one", len(given), header)
	case len(given) == 1 && given[0] == "":
		return invalid("the request's %s header is empty: set a key, or none to get one", header)
	case len(given) == 1 && set && given[0] != wanted:
		return invalid("the request's %s header and WithKey say different keys: use one of the two", header)
	case len(given) == 1:
		s.key = given[0]
	case set:
		if wanted == "" {
			return invalid("WithKey got an empty key")
		}
		bare, err := bareKey([]string{wanted})
		if err == nil {
			err = checkKey(bare, 1, isKeyChar, keyChars)
		}
		if err != nil {
			return invalid("the key of WithKey: %v", err)
		}
		if bare != wanted {
			return invalid("WithKey takes the key bare, without quotes and white space")
		}
		s.key = wanted
	case s.key == "":
		s.key, s.made = uuid7(now), true
	}
	return nil
}

// derivedPrefix starts every derived key. Its number grows when the derivation changes,
// since every request then gets a new key.
const derivedPrefix = "d1-"

// DeriveKey makes a key of business parts, such as "order", the order's id and
// "capture". The same parts give the same key, in every process and at any time, so a
// producer need not remember the key across a crash. Parts that differ in content, order
// or number give different keys. Parts are compared byte for byte: normalize their
// spelling first.
//
// The key has 46 characters of the key grammar: "d1-" and a SHA-256 digest. It is not
// secret: a caller who can guess the parts can make it. It does not contain a time: a
// service that refuses old keys also needs the time at which the request was first sent.
//
// No parts, or an empty part, is an error that matches [idem.ErrKeyInvalid]: a missing id
// must not become a key that all callers share.
func DeriveKey(parts ...string) (string, error) {
	if len(parts) == 0 {
		return "", fmt.Errorf("%w: there are no parts to derive it from", idem.ErrKeyInvalid)
	}
	h := sha256.New()
	h.Write([]byte("idem-go derived key 1\x00"))
	length := make([]byte, 0, 8)
	for i, p := range parts {
		if p == "" {
			return "", fmt.Errorf("%w: part %d of %d to derive it from is empty", idem.ErrKeyInvalid, i+1, len(parts))
		}
		// The length before each part keeps ("a", "bc") and ("ab", "c") apart.
		h.Write(binary.BigEndian.AppendUint64(length, uint64(len(p))))
		h.Write([]byte(p))
	}
	return derivedPrefix + base64.RawURLEncoding.EncodeToString(h.Sum(nil)), nil
}
