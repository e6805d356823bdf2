package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/view"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

type resolveCmd struct {
	recordFlags
	manyFlags
	changeFlags
	To      idem.State `required:"" enum:"completed,failed,released" help:"The outcome: completed (it took effect), failed (it ended in a failure) or released (it had no effect)."`
	Again   bool       `help:"Replace an earlier resolution."`
	Undone  bool       `help:"What the steps did has been undone: by hand to failed, and to completed with a refusal; to completed of an operation that has failed, where it has a result all the same."`
	Ref     string     `placeholder:"TEXT" help:"The provider's reference, if there is one."`
	Message string     `placeholder:"TEXT" help:"To failed: the failure's text, which later calls get; over HTTP they get 500."`
	Type    string     `placeholder:"NAME" help:"To failed: the failure's type."`
	Code    string     `placeholder:"CODE" help:"To failed: the failure's code."`
	resultFlags
	stepFlags
	answerFlags
}

// answerFlags have what the provider answered.
type answerFlags struct {
	ProviderSays string `placeholder:"TEXT" help:"What the provider answered when it was asked; it is kept with the reason. Required with --again, and for a release that can repeat an effect."`
}

func (c *resolveCmd) Run(ctx context.Context, s *session) error {
	steps, err := c.answers()
	if err != nil {
		return err
	}
	given, err := c.read(ctx, s.in)
	if err != nil {
		return err
	}
	prepare := func(rec *idem.Record, _ reconcile.Decision) (action, error) {
		res := reconcile.Resolution{To: c.To, CompensatedManually: c.Undone, Replace: c.Again, Ref: c.Ref, Steps: steps}
		if c.To == idem.Failed {
			res.Failure = &idem.Failure{Message: c.Message, Type: c.Type, Code: c.Code}
		}
		if s.sealed(rec) && (given != nil || len(c.bodies) > 0) {
			return action{}, errors.New("refused, and nothing was changed: the record's results are encrypted, and this " +
				"one would not be: name the KMS key with --kms-key, or give no result")
		}
		if given != nil {
			if res.Result, err = given.encode(rec); err != nil {
				return action{}, err
			}
		}
		p := s.records.Preview(rec, res)
		return action{
			then: flags(p.Then), caution: flags(p.Caution), again: p.Again, records: res,
			unanswered: (p.Repeats || p.Again) && strings.TrimSpace(c.ProviderSays) == "",
			shows:      func(s *session) { c.shows(s, given, res.Result) },
			do:         func(ctx context.Context, by reconcile.Change) error { return s.records.Resolve(ctx, rec.ID, res, by) },
		}, refused(p)
	}
	d := decision{protocol.ChangeResolved, c.To, prepare}
	c.Reason = view.Why(c.Reason, c.ProviderSays)
	if c.Limit > 0 {
		return s.decideMany(ctx, c.recordFlags, c.manyFlags, c.changeFlags, d)
	}
	return s.decide(ctx, c.recordFlags, c.changeFlags, d)
}

// shows writes what is recorded, for the operator who gave it: the files' names do not say
// whether it is of this case.
func (c *resolveCmd) shows(s *session, given *given, e *protocol.Encoded) {
	if given != nil {
		given.shows(s, e)
	}
	if c.To == idem.Failed {
		s.field("Failure", "%s", failureText(&view.Failure{Message: c.Message, Type: c.Type, Code: c.Code}))
	}
	if c.Undone {
		s.field("Undone", "what the steps did")
	}
	c.stepFlags.shows(s)
	if c.Ref != "" {
		s.field("Reference", "%s", view.Plain(c.Ref))
	}
}

func (c *resolveCmd) check() error {
	failure := c.Message != "" || c.Type != "" || c.Code != ""
	result := c.Result != "" || c.http()
	switch {
	case c.To == idem.Failed && c.Message == "":
		return misuse("--to failed needs --message: later calls get it")
	case c.To != idem.Failed && failure:
		return misuse("--message, --type and --code are for --to failed")
	case c.To == idem.Released && c.Undone:
		return misuse("--undone is for --to failed, and for --to completed with a refusal or of what " +
			"has failed and was undone")
	case c.To != idem.Released && len(c.Step) > 0:
		return misuse("--step is for --to released: the next call goes on with what became of it")
	case c.Limit > 0 && len(c.Step) > 0:
		return misuse("--step is of one record: leave out --limit")
	case c.Limit > 0 && c.Again != (c.Decision != ""):
		return misuse("--again and --decision belong together with --limit: idemctl changes names the " +
			"decisions of many records")
	case c.Limit > 0 && c.Ref != "":
		return misuse("one reference cannot be that of many records, by which the provider is asked for each: leave out " +
			"--ref, or resolve them one by one")
	case c.To != idem.Completed && (result || c.NoResult):
		return misuse("a result is for --to completed")
	case c.To == idem.Completed && result == c.NoResult:
		return misuse("--to completed needs the result that later calls get: --result, for an HTTP request --status with " +
			"--header and --body; or --no-result")
	case c.Limit > 0 && result:
		return misuse("one result cannot be that of many records: use --no-result, or resolve them one by one")
	}
	if err := c.manyFlags.check(&c.recordFlags, &c.changeFlags); err != nil {
		return err
	}
	return c.resultFlags.check(c.Yes || c.DryRun)
}

type releaseCmd struct {
	recordFlags
	manyFlags
	changeFlags
	stepFlags
	answerFlags
	Again bool   `help:"Replace an earlier resolution."`
	Ref   string `placeholder:"TEXT" help:"The provider's reference, if there is one."`
}

func (c *releaseCmd) resolve() *resolveCmd {
	return &resolveCmd{
		recordFlags: c.recordFlags, manyFlags: c.manyFlags, changeFlags: c.changeFlags, stepFlags: c.stepFlags,
		answerFlags: c.answerFlags, To: idem.Released, Again: c.Again, Ref: c.Ref,
	}
}

func (c *releaseCmd) check() error { return c.resolve().check() }

func (c *releaseCmd) Run(ctx context.Context, s *session) error { return c.resolve().Run(ctx, s) }

type forgetCmd struct {
	recordFlags
	changeFlags
}

func (c *forgetCmd) Run(ctx context.Context, s *session) error {
	prepare := func(rec *idem.Record, x reconcile.Decision) (action, error) {
		forget := func(ctx context.Context, by reconcile.Change) error { return s.records.Forget(ctx, rec.ID, by) }
		return action{then: x.Then, caution: x.Caution, do: forget}, refused(x)
	}
	return s.decide(ctx, c.recordFlags, c.changeFlags, decision{protocol.ChangeForgotten, idem.Absent, prepare})
}

type extendCmd struct {
	recordFlags
	changeFlags
	For   time.Duration `xor:"until" placeholder:"720h" help:"Keep it for this long from now."`
	Until time.Time     `xor:"until" placeholder:"2026-05-01T00:00:00Z" help:"Keep it until then."`
}

func (c *extendCmd) check() error {
	switch {
	case c.For < 0:
		return misuse("--for is %v: it cannot be negative", c.For)
	case c.For == 0 && c.Until.IsZero():
		return misuse("say until when: --for or --until")
	}
	return nil
}

func (c *extendCmd) Run(ctx context.Context, s *session) error {
	until := c.Until
	if c.For > 0 {
		until = s.now().Add(c.For)
	}
	prepare := func(rec *idem.Record, x reconcile.Decision) (action, error) {
		if x.Refused == "" && !rec.ExpiresAt.Before(until) {
			return action{}, fmt.Errorf("there is nothing to do: the record is kept until %s already", view.At(rec.ExpiresAt))
		}
		return action{
			what: fmt.Sprintf("extend: the record stays %s, and is kept until %s.", s.aside().state(rec.State), view.At(until)),
			then: x.Then,
			do:   func(ctx context.Context, by reconcile.Change) error { return s.records.Extend(ctx, rec.ID, until, by) },
		}, refused(x)
	}
	return s.decide(ctx, c.recordFlags, c.changeFlags, decision{change: protocol.ChangeExtended, prepare: prepare})
}
