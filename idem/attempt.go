package idem

import (
	"context"
	"crypto/sha256"
	"fmt"
	"github.com/idem-go/idempotency/idem/protocol"
	"os"
	"strconv"
	"sync/atomic"
	"time"
)

// attempt is one run of a handler: its claim, and what the handler may ask of it.
type attempt struct {
	key    Key
	rec    Record // as claimed
	open   bool   // runs without a claim, because the store was down
	begun  time.Time
	kill   time.Time // zero where nobody kills the process
	writes atomic.Int32
	// says is the class that the handler has set beside its response.
	says atomic.Int32
	// signs is set once the handler has done what comes with an effect.
	signs   atomic.Bool
	kept    []byte // what to record of a result that is too large
	omitted bool   // the outcome is recorded without its result
	running *lease // while the handler runs
	journal journal
	// born is the claim that an attempt in atomic mode did not write, and stood the
	// state that the record was in when it began.
	born  *protocol.Claim
	stood State
	unit  unitSlot
}

type attemptKey struct{}

// writeID returns the id of the attempt's next write. The owner is random, so a
// counter behind it is unique.
func (a *attempt) writeID() string {
	return a.rec.Owner + "." + strconv.Itoa(int(a.writes.Add(1)))
}

func attemptOf(ctx context.Context) *attempt {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	return a
}

// Info tells a handler about its own attempt.
type Info struct {
	// ID of the record, Tenant and Operation of the key.
	ID, Tenant, Operation string
	// Step is the name of the step that the context is inside of, if any.
	Step string
	// Attempt is this attempt's number, from 1. For logs: it is not a fencing
	// number across expiry.
	Attempt int
	// Token: see [Token].
	Token string
	// LeaseUntil is when the claim, as it was taken, stops being respected; zero in
	// atomic mode.
	LeaseUntil time.Time
	// WithoutClaim is set in atomic mode, and when the store was down and the
	// operation fails open.
	WithoutClaim bool
}

// InfoOf returns what the handler's context knows of its attempt, and false
// outside an operation.
func InfoOf(ctx context.Context) (Info, bool) {
	a := attemptOf(ctx)
	if a == nil {
		return Info{}, false
	}
	a.signs.Store(true)
	info := Info{
		ID: a.key.id, Tenant: a.key.tenant, Operation: a.key.op.Name, Step: stepOf(ctx),
		Attempt: a.rec.Attempt, Token: a.token(ctx),
		LeaseUntil: a.rec.LeaseUntil, WithoutClaim: !a.claimed(),
	}
	if a.atomic() {
		info.LeaseUntil = time.Time{}
	}
	return info, true
}

// atomic reports whether the attempt runs in atomic mode.
func (a *attempt) atomic() bool { return a.born != nil }

// claimed reports whether the attempt holds a claim.
func (a *attempt) claimed() bool { return !a.open && !a.atomic() }

// Token returns the idempotency key to send downstream. It depends on the key
// only, inside a [Step] also on the step's name: it is the same on every attempt,
// also after expiry, and different for every tenant, operation, value and step. Its form is a UUID (version 8, RFC 9562),
// which providers accept most widely. Outside an operation it panics: a token
// made up there would protect nothing.
func Token(ctx context.Context) string {
	a := attemptOf(ctx)
	if a == nil {
		panic("idem.Token: the context is not a handler's: pass the context that the handler was given")
	}
	a.signs.Store(true)
	return a.token(ctx)
}

// token is the key's, or that of the step that the context is inside of.
func (a *attempt) token(ctx context.Context) string {
	if name := stepOf(ctx); name != "" {
		// No id has a NUL: it is percent-encoded.
		return tokenOf(a.key.id + "\x00" + name)
	}
	return tokenOf(a.key.id)
}

func (a *attempt) engine() *Engine { return a.running.plan.engine }

func (a *attempt) notifyStep(ctx context.Context, kind NoticeKind, name string, err error) {
	a.running.plan.notify(ctx, kind, Notice{Attempt: a.rec.Attempt, State: InProgress, Step: name, Err: err})
}

func tokenOf(id string) string {
	sum := sha256.Sum256([]byte("idem token 1\x00" + id))
	u := sum[:16]
	u[6] = u[6]&0x0f | 0x80 // version 8: vendor-specific
	u[8] = u[8]&0x3f | 0x80 // variant of RFC 9562
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

// SetNotExecuted says, beside a response and without an error, that surely
// nothing took effect: the response is returned and the next call with the key
// gets the claim, with another input too as long as no step is recorded. It speaks for the operation: outside of one, and inside a [Step],
// it does nothing. Of several calls of SetNotExecuted and [SetCompleted] the last
// one counts.
func SetNotExecuted(ctx context.Context) { set(ctx, ClassNotExecuted) }

// SetCompleted says, beside a response and without an error, that the response is
// the operation's outcome although it looks like a refusal, such as HTTP 402: its
// [Unit] of work commits with it and its steps stay as they are. Steps that are
// already being undone are a failure all the same, unless this attempt has called
// [Compensate] itself. Outside an operation, and inside a [Step], it does nothing.
func SetCompleted(ctx context.Context) { set(ctx, ClassCompleted) }

func set(ctx context.Context, c Class) {
	if a := attemptOf(ctx); a != nil && stepOf(ctx) == "" {
		a.says.Store(int32(c))
	}
}

type killTimeKey struct{}

// WithKillTime tells the engine when the process will be killed or frozen, as
// Lambda's deadline says: the lease ends then and needs no renewal before. The wrappers
// of package idemlambda call it with the deadline of the context that they are given;
// without it, inside Lambda, the context's own deadline counts, and elsewhere a lease
// that is renewed while the handler runs. The first time that was set counts: a context
// that has one is returned as it is.
//
// A context with an earlier deadline than the invocation's, such as a middleware makes,
// may thus be taken for it. That ends the handler's context early, but no claim: a
// handler that still runs when its kill time has passed was not killed, and its lease
// is renewed from then on until it returns.
//
// On Lambda Managed Instances nothing is killed or frozen: Lambda answers the caller
// with a time-out, and the handler runs on
// (https://docs.aws.amazon.com/lambda/latest/dg/lambda-managed-instances-execution-environment.html).
// There the time ends the handler's context, as everywhere, but not the lease, which
// is renewed until the handler returns: its twins find it in flight for so long, and
// its late outcome is recorded.
func WithKillTime(ctx context.Context, t time.Time) context.Context {
	if _, ok := ctx.Value(killTimeKey{}).(time.Time); ok {
		return ctx
	}
	return context.WithValue(ctx, killTimeKey{}, t)
}

// runsOn reports whether the process is a Lambda Managed Instance. Such a one may
// be limited to one invocation at a time; several tell it for certain.
func runsOn() bool {
	n, err := strconv.Atoi(os.Getenv("AWS_LAMBDA_MAX_CONCURRENCY"))
	return os.Getenv("AWS_LAMBDA_INITIALIZATION_TYPE") == "lambda-managed-instances" || err == nil && n > 1
}

func (e *Engine) killTime(ctx context.Context) (time.Time, bool) {
	if t, ok := ctx.Value(killTimeKey{}).(time.Time); ok {
		return t, true
	}
	if e.inLambda {
		return ctx.Deadline()
	}
	return time.Time{}, false
}
