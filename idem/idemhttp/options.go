package idemhttp

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/idem/internal/canonical"
)

// DefaultKeyHeader is the header that carries the key, as
// https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/ names it:
// a draft that has expired, and the de facto contract.
const DefaultKeyHeader = "Idempotency-Key"

// Options of a contract. Nil and zero fields mean the defaults. Functions must be safe
// for concurrent use.
type Options struct {
	// Which operation's record a request is for: its principal and its key.

	// Principal binds keys to a principal within the tenant: two principals with
	// the same key have two records, and neither sees the other's. It becomes a part
	// of the key's value, [idem.JoinValues] of principal and key, so that records
	// still lie under their tenant. Nil means that a tenant's principals share keys.
	// Changing it forgets all records.
	Principal TenantFunc

	// KeyHeader is the name of the key's header. Empty means [DefaultKeyHeader].
	KeyHeader string

	// KeyPointer names the body's field that is the key, as a JSON pointer
	// (RFC 6901) such as "/id", for producers that set no headers. The body is read
	// as JSON, whatever type it declares. The field is a string, or a plain integer, whose
	// digits are the key as they are written; either is held to the rules for bare keys
	// (see MinKey for short ids). The header is then not looked at. Empty means the
	// header.
	KeyPointer string

	// Key finds the key in your own way; header and body are then not looked at and
	// MinKey does not count, only the limits of [idem.Operation.Key]. Nil means the
	// header or KeyPointer.
	Key KeyFunc

	// MinKey is the least length of a key in characters, 1 to [MaxKey]. Zero means
	// [DefaultMinKey], in the Stripe profile 1. With short keys two clients may use the same one by accident.
	MinKey int

	// KeyOptional executes a request without a key under a random one, which no retry
	// can send: it costs as much, and its handler has token, steps and transaction as
	// always. By default such a request is answered with 400.
	KeyOptional bool

	// Which requests need a key, and what tells one from another.

	// Methods need a key; all others pass untouched. Empty means POST and PATCH,
	// which HTTP does not define as idempotent.
	Methods []string

	// KnownRoutes lists all routes of the API that the contract serves, as in
	// [Routes]: [New] then refuses one that needs a key and declares no operation. Nil
	// means that such a route is found when it is first requested, and answered with
	// 500.
	KnownRoutes []string

	// Select says which parts of a JSON body tell one request from another; nil
	// means all. A body that is not JSON counts as a whole.
	Select *fingerprint.Select

	// AnyStage leaves the API's stage out of the comparison: a request to one stage is
	// then answered with what the same request to another stage did. By default it is
	// refused as a reuse of the key. Changing it makes a retry across the deployment
	// look like a reuse too.
	AnyStage bool

	// What refusals look like.

	// Profile is the set of answers. The zero value is [IETF].
	Profile Profile

	// Overrides overrides single answers of the profile.
	Overrides map[Code]Override

	// ProblemMembers adds members to every problem, such as a trace id. It gets the request
	// that is answered and nothing else. A member that the contract itself sets is
	// left out, and all are if they cannot be encoded as JSON. Nil adds none.
	ProblemMembers func(ctx context.Context, r *Request, code Code) map[string]any

	// Documentation is the URL of the page that tells the service's clients about
	// keys. Every refusal links to it: Link: <URL>; rel="describedby" (RFC 8288), as
	// the IETF draft has it. Empty means no link.
	Documentation string

	// Headers adds headers to every refusal, such as those of CORS without which a
	// browser's script cannot read it. It gets the request that is answered and
	// nothing else. It may override Cache-Control, which is no-store, and Link; what
	// else the contract sets itself is left out, as is what no header can hold. Nil
	// adds none.
	Headers func(ctx context.Context, r *Request, code Code) map[string]string

	// What a response means for its record.

	// Status overrides what a response's status means for its record, for any status
	// from 200 to 599: [idem.ClassCompleted] commits the unit of work and keeps the
	// steps, [idem.ClassFailed] drops and undoes them, and both record the response;
	// [idem.ClassNotExecuted], [idem.ClassRejected] and [idem.ClassUncertain] record
	// none; [idem.ClassRefused] leaves the key free for a corrected request. [idem.Operation.Classify], [idem.SetNotExecuted] and [idem.SetCompleted]
	// still come first. Others keep their meaning, see the package's documentation.
	Status map[int]idem.Class

	// Refused makes the response of a request whose unit of work was refused, in place
	// of the one that the handler gave with it: with dynamostore.Tx the transaction
	// had a condition that did not hold, and nothing of it was written. It gets what
	// the action's function made of that. Its response counts by its status as the
	// handler's own do: a 402 or 409 is recorded and replayed. Returning an error
	// instead, or neither, is as if the handler had returned the error. Nil means
	// that the reason is the handler's error.
	Refused func(ctx context.Context, reason error) (*Response, error)

	// What of a response is kept, and what a replay is made of.

	// NeverStore names more headers that are not stored, in any case, beside those
	// that never are. The first caller gets them; a replay does not have them.
	NeverStore []string

	// Redact takes out of a response what must not be kept, before it is stored. It
	// works on a copy: the first caller gets the whole response, every later one
	// what is left. This is the one way in which a replay's body differs from the
	// live one. It must not change the status. If it panics, the outcome is
	// recorded without its response. Nil means that nothing is taken out.
	Redact func(*Response)

	// Refresh renews in a replay what has aged, such as a signed link or a header
	// that depends on this request. It works on a copy, and the marks of a replay are
	// set after it. Nil means that replays are as recorded, byte for byte.
	Refresh func(ctx context.Context, r *Request, res *Response)

	// ResponseVersion is the version of the responses' schema, zero or more, recorded
	// with each. Raise it with a change after which the clients of the new code could
	// not read what the old code has recorded, or the other way round.
	ResponseVersion int

	// Migrate turns a recorded response of another version into one of
	// ResponseVersion. During a rolling deployment from is lower in new code and
	// higher in old code. Its error, or no function at all, is answered with 503
	// response_version_mismatch, and nothing is executed. It works on a copy.
	Migrate func(from int, res *Response) error

	// Requests that are late, or early.

	// MaxAge refuses requests that were first sent before the retention window. Nil
	// means that they are executed like new ones.
	MaxAge *MaxAge

	// Wait is how long a concurrent duplicate waits for the first request's response,
	// which it then gets. It ends before the deadline and before the gateway gives up
	// ([Request.GatewayDeadline]), with the answer for a request in flight. Zero means
	// [idem.Options.Wait], negative means not at all.
	Wait time.Duration

	// Location gives the URL at which a client can follow a request in flight. With
	// it a concurrent duplicate is answered with 202 and this Location in place of 409. An empty
	// result, or one that is no URL reference, means 409. Nil means 409 always.
	Location func(ctx context.Context, r *Request) string

	// ExpiresOnFirst puts [HeaderExpires] on first responses too, if their outcome is
	// recorded.
	ExpiresOnFirst bool
}

// check returns the options with their defaults, or what is wrong with them.
func (o *Options) check() (Options, error) {
	var out Options
	if o != nil {
		out = *o
	}
	switch {
	case out.MinKey < 0 || out.MinKey > MaxKey:
		return out, mistake("MinKey is %d: use 1 to %d, or zero for %d", out.MinKey, MaxKey, DefaultMinKey)
	case out.KeyHeader != "" && !isToken(out.KeyHeader):
		return out, mistake("KeyHeader %q is not a header name", out.KeyHeader)
	case count(out.KeyHeader != "", out.KeyPointer != "", out.Key != nil) > 1:
		return out, mistake("the key has several sources: set one of KeyHeader, KeyPointer and Key")
	case out.Key != nil && out.MinKey != 0:
		return out, mistake("MinKey does not count for keys of your own function: leave it out, and check them there")
	case out.ResponseVersion < 0 || out.ResponseVersion > math.MaxInt32:
		return out, mistake("ResponseVersion is %d: count versions from zero", out.ResponseVersion)
	}
	if err := canonical.CheckPointer(out.KeyPointer); err != nil {
		return out, mistake("KeyPointer: %v", err)
	}
	if err := out.Select.Check(); err != nil {
		return out, err
	}
	if err := out.checkStatus(); err != nil {
		return out, err
	}
	if out.KeyHeader == "" {
		out.KeyHeader = DefaultKeyHeader
	}
	if out.MinKey == 0 {
		if out.MinKey = DefaultMinKey; out.Profile == Stripe {
			out.MinKey = 1
		}
	}
	out.Methods = slices.Clone(out.Methods)
	if len(out.Methods) == 0 {
		out.Methods = []string{"POST", "PATCH"}
	}
	for _, m := range out.Methods {
		if !isToken(m) || m != strings.ToUpper(m) {
			return out, mistake("Methods has %q: write methods in capitals, such as POST", m)
		}
	}
	for _, name := range out.NeverStore {
		if !isToken(name) {
			return out, mistake("NeverStore has %q, which is not a header name", name)
		}
	}
	if !isLinkTarget(out.Documentation) {
		return out, mistake("Documentation %q is no URL, such as \"https://example.com/docs/idempotency\"", out.Documentation)
	}
	old, err := out.MaxAge.check()
	out.MaxAge = old
	return out, err
}

// keyPlace says to clients where the key is looked for.
func (o *Options) keyPlace() string {
	switch {
	case o.Key != nil:
		return ""
	case o.KeyPointer != "":
		return fmt.Sprintf(" in the body's field %q", o.KeyPointer)
	}
	return " in the header " + o.KeyHeader
}

func (o *Options) checkStatus() error {
	o.Status = maps.Clone(o.Status)
	for _, status := range slices.Sorted(maps.Keys(o.Status)) {
		if status < 200 || status > 599 {
			return mistake("Status has %d, which is not a final HTTP status: use 200 to 599", status)
		}
		switch o.Status[status] {
		case idem.ClassCompleted, idem.ClassFailed, idem.ClassNotExecuted, idem.ClassRejected, idem.ClassRefused, idem.ClassUncertain:
		default:
			return mistake("Status gives %d the class %d: use idem.ClassCompleted, idem.ClassFailed, idem.ClassNotExecuted, idem.ClassRejected, idem.ClassRefused or idem.ClassUncertain", status, o.Status[status])
		}
	}
	return nil
}

func count(facts ...bool) int {
	n := 0
	for _, f := range facts {
		if f {
			n++
		}
	}
	return n
}

func mistake(format string, args ...any) error {
	return &idem.ConfigError{What: "HTTP contract", Problem: fmt.Sprintf(format, args...)}
}

// isToken reports whether s is a token of RFC 9110 5.6.2.
func isToken(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}
