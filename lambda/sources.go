package idemlambda

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/idem-go/idempotency/idem"
)

// newSource makes the part that the constructors of all sources share. Mistakes in
// the set-up panic.
func newSource[R, In any](s source[R], o *Options[R], body func(*R) []byte, fn func(context.Context, In) error) *source[R] {
	if o != nil {
		s.opts = *o
	}
	s.open = func(r *R) (job, error) {
		in, fp, err := openBody[In](body(r), s.opts.Select)
		return job{fp, func(ctx context.Context) error { return fn(ctx, in) }}, err
	}
	return s.ready(fn == nil, isText[In]())
}

// newRawSource is for sources whose handlers take the record itself. What a service
// adds to a record's second delivery differs, so the key alone tells records apart.
func newRawSource[R any](s source[R], o *Options[R], fn func(context.Context, R) error) *source[R] {
	if o != nil {
		s.opts = *o
	}
	s.open = func(r *R) (job, error) {
		return job{idem.FingerprintBytes(nil), func(ctx context.Context) error { return fn(ctx, *r) }}, nil
	}
	return s.ready(fn == nil, true)
}

// ready checks the set-up and fills in the defaults.
func (s source[R]) ready(noHandler, text bool) *source[R] {
	if s.opts.Concurrency == 0 {
		s.opts.Concurrency = 1
	}
	if err := s.check(noHandler, text); err != nil {
		panic(err)
	}
	return &s
}

// withRetention gives an operation that names none the source's.
func withRetention(op idem.Operation, d time.Duration) idem.Operation {
	if op.Retention == 0 {
		op.Retention = d
	}
	return op
}

// unordered stands for sources whose records have no order.
func unordered[R any](*R) (string, bool) { return "", false }

// redeliverAll is redeliverFrom of a source that delivers an event as a whole.
func redeliverAll[R any](ds []delivery[R]) int {
	if _, back := firstRedelivered(ds); back {
		return 0
	}
	return len(ds)
}

// wholeEvent is what a source that delivers an event as a whole gets: the error of the
// first record that is redelivered, which makes the service deliver all of them again.
// Those that are done are then replayed.
func wholeEvent[R any](ds []delivery[R]) error {
	for i := range ds {
		o := &ds[i].out
		if o.Reason.Acknowledges() {
			continue
		}
		if o.Err != nil {
			return toRuntime(o.Err)
		}
		return fmt.Errorf("idemlambda: %s: %s", ds[i].name, o.Reason)
	}
	return nil
}

// inBody takes the key from a record's body by JSON pointer.
func inBody[R any](what, tenantPointer string, values []string, body func(*R) []byte) RecordKeyFunc[R] {
	find := pointersInto("body", "idemlambda."+what, tenantPointer, values)
	return func(ctx context.Context, r *R) (string, string, error) { return find(ctx, json.RawMessage(body(r))) }
}

// tenantNotFound says about a tenant that is not where a key function looks for it
// what the function's first argument names.
func tenantNotFound(maker, where string, err error) error {
	return fmt.Errorf("%w (the first argument of %s names the tenant's %s)", err, maker, where)
}

// parts makes a key's value of all the parts that together are a record's identity.
// One that is missing would make strangers share a record.
func parts(noun string, named ...[2]string) (string, string, error) {
	values := make([]string, len(named))
	for i, p := range named {
		if p[1] == "" {
			return "", "", fmt.Errorf("%w: the %s has no %s", idem.ErrKeyInvalid, noun, p[0])
		}
		values[i] = p[1]
	}
	return idem.NoTenant, identityOf(values...), nil
}

// longIdentity is what a key's value may be, in bytes, as in package idem.
const longIdentity = 1024

// identityOf joins the parts of an identity to a key's value. The parts' lengths are
// the service's or the sender's choice, and an object's key alone may be as long as a
// value: what is too long is digested. No joined value has a colon.
func identityOf(parts ...string) string {
	value := idem.JoinValues(parts...)
	if len(value) <= longIdentity {
		return value
	}
	sum := sha256.Sum256([]byte(value))
	return "sha256:" + hex.EncodeToString(sum[:])
}
