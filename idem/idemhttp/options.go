package idemhttp

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
)

// DefaultKeyHeader is the header of the key in
// https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/,
// an expired draft that is the de facto contract.
const DefaultKeyHeader = "Idempotency-Key"

// Options of a contract. Nil and zero fields mean the defaults. Functions must be safe
// for concurrent use.
type Options struct {
	// The record that a request is for: its principal and its key.

	// Principal binds keys to a principal within the tenant: two principals with
	// the same key have two records, and neither sees the other's. The key's value is
	// then [idem.JoinValues] of principal and key, so that records stay under their
	// tenant. Nil means that a tenant's principals share keys. After a change of this
	// option existing records are not found.
	Principal TenantFunc

	// Key says where the key is. The zero value is the header [DefaultKeyHeader]. After a change of this
	// option existing records are not found: a request that is sent again is executed again.
	Key KeySource

	// MinKey is the least length of a key in characters, 1 to [MaxKey]. Zero means
	// [DefaultMinKey], in the Stripe profile 1. With short keys two clients may use the same
	// one by accident.
	MinKey int

	// KeyOptional executes a request without a key under a random key, which no retry can
	// send. It costs as much as another request, and its handler has token, steps and
	// transaction as usual. Its body need not be canonical, since it is not compared. The observer
	// gets [notice.Keyless] for it, which the metric keyless counts. By default such a request is
	// answered with 400.
	KeyOptional bool

	// ByRoute has other values of these for single routes, named as in [Routes], and their tenant
	// functions. Nil means that all routes have those of the contract.
	ByRoute map[string]RouteOptions

	// Which requests need a key, and which parts of them are compared.

	// Methods need a key; requests with other methods are passed on unchanged. Empty means
	// POST and PATCH, which HTTP does not define as idempotent.
	Methods []string

	// Select says which parts of a JSON body are compared; nil
	// means all. A body that is not JSON counts as a whole.
	Select *fingerprint.Select

	// Later are the routes whose operations are accepted now and executed by a worker: a
	// [LaterRoutes]. Nil means none.
	Later AcceptsLater

	// What refusals look like.

	// Profile is the set of answers. The zero value is [IETF].
	Profile Profile

	// OnRefusal gets refusals before they are sent, to count or to change them: their status and
	// texts, and the members and headers that the service adds. The IETF draft asks for a link to
	// the service's page about keys:
	//
	//	f.Headers = map[string]string{"Link": `<https://example.com/docs/keys>; rel="describedby"`}
	//
	// The answers about accepted work ([Options.Later]) that are no refusals come here too, as
	// [CodeAccepted]: only the headers count there. Nil changes nothing.
	OnRefusal func(ctx context.Context, r *Request, f *Refusal)

	// What a response means for its record.

	// Status overrides what a response's status means for its record, for any status
	// from 200 to 599. [idem.ClassCompleted] commits the unit of work and keeps the
	// steps, [idem.ClassFailed] drops and undoes them; both record the response.
	// [idem.ClassNotExecuted], [idem.ClassRejected] and [idem.ClassUncertain] record no
	// response. [idem.ClassRefused] leaves the key free for a corrected request.
	// [idem.Operation.Classify], [idem.SetNotExecuted] and [idem.SetCompleted] still come
	// first. Other statuses keep their meaning, see the package's documentation.
	Status map[int]idem.Class

	// OnUnitRefused makes the response of a request whose unit of work was refused. With
	// dynamostore.Tx a condition of the transaction did not hold, and nothing of it was
	// written. OnUnitRefused gets the error that the action's function returned. Its response
	// replaces the handler's and counts by its status: a 402 or 409 is recorded and
	// replayed. If it returns an error or neither, the effect is as if the handler had
	// returned the error. Nil means that the reason is the handler's error.
	OnUnitRefused func(ctx context.Context, reason error) (*Response, error)

	// What is kept of a response, and what a replay consists of.

	// Redact removes from a response what must not be kept, before it is stored, such as
	// [OnlyHeaders] or [WithoutHeaders]. Headers that belong to one exchange, such as
	// Set-Cookie, are never stored. It works on a copy: the first caller gets the whole
	// response, every later one the rest. A replay's body differs from the live one only by Redact, Refresh and
	// Migrate. Redact must not change the status. If it panics, the outcome is recorded
	// without its response. Nil means that nothing is removed.
	Redact func(*Response)

	// Refresh renews outdated parts of a replay, such as a signed link or a header
	// that depends on this request. It works on a copy, and the headers of a replay are
	// set after it. Nil means that replays are as recorded, byte for byte.
	Refresh func(ctx context.Context, r *Request, res *Response)

	// ResponseVersion is the version of the responses' schema, zero or more, and is
	// recorded with each response. Raise it if the clients of the new code cannot read the
	// old code's responses, or the other way round.
	ResponseVersion int

	// Migrate turns a recorded response of another version into one of
	// ResponseVersion. During a rolling deployment from is lower in new code and
	// higher in old code. It works on a copy. If it returns an error or is nil, the answer
	// is 503 response_version_mismatch, and nothing is executed.
	Migrate func(from int, res *Response) error

	// Requests that are late.

	// MaxAge refuses requests that were first sent before the retention window. Nil
	// means that they are executed like new ones.
	MaxAge *MaxAge
}

// check returns the options with their defaults, or what is wrong with them.
func (o *Options) check() (Options, error) {
	var out Options
	if o != nil {
		out = *o
	}
	if out.ResponseVersion < 0 || out.ResponseVersion > math.MaxInt32 {
		return out, mistake("ResponseVersion is %d: count versions from zero", out.ResponseVersion)
	}
	if err := (&RouteOptions{Key: out.Key, MinKey: out.MinKey}).check(""); err != nil {
		return out, err
	}
	if err := out.Select.Check(); err != nil {
		return out, err
	}
	if err := out.checkStatus(); err != nil {
		return out, err
	}
	var problem string
	if out.Methods, problem = keyedMethods(out.Methods); problem != "" {
		return out, mistake("%s", problem)
	}
	var err error
	out.MaxAge, err = out.MaxAge.check()
	return out, err
}

// keyedMethods returns a copy of the methods that need a key, by default POST and PATCH, or what
// is wrong with them.
func keyedMethods(given []string) (methods []string, problem string) {
	if len(given) == 0 {
		return []string{"POST", "PATCH"}, ""
	}
	for _, m := range given {
		if !isToken(m) || m != strings.ToUpper(m) {
			return nil, fmt.Sprintf("Methods has %q: write methods in capitals, such as POST", m)
		}
	}
	return slices.Clone(given), ""
}

func (o *Options) checkStatus() error {
	o.Status = maps.Clone(o.Status)
	for _, status := range slices.Sorted(maps.Keys(o.Status)) {
		if status < 200 || status > 599 {
			return mistake("Status has %d, which is not a final HTTP status: use 200 to 599", status)
		}
		switch o.Status[status] {
		case idem.ClassCompleted, idem.ClassFailed, idem.ClassNotExecuted, idem.ClassRejected, idem.ClassRefused,
			idem.ClassUncertain:
		default:
			return mistake("Status gives %d the class %d: use idem.ClassCompleted, idem.ClassFailed, idem.ClassNotExecuted, "+
				"idem.ClassRejected, idem.ClassRefused or idem.ClassUncertain", status, o.Status[status])
		}
	}
	return nil
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
