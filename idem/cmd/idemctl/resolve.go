package main

import (
	"context"
	"errors"

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
	Message string     `placeholder:"TEXT" help:"To failed: the failure's text, which later calls get."`
	Type    string     `placeholder:"NAME" help:"To failed: the failure's type."`
	Code    string     `placeholder:"CODE" help:"To failed: the failure's code."`
	resultFlags
	stepFlags
}

func (c *resolveCmd) Run(ctx context.Context, s *session) error {
	if err := c.check(); err != nil {
		return err
	}
	r, b, err := s.reconciler(ctx)
	if err != nil {
		return err
	}
	steps, err := c.answers()
	if err != nil {
		return err
	}
	given, err := c.read(ctx, s.in)
	if err != nil {
		return err
	}
	d := decision{to: c.To}
	d.prepare = func(rec *idem.Record, _ reconcile.Decision) (action, error) {
		res := reconcile.Resolution{To: c.To, CompensatedManually: c.Undone, Replace: c.Again, Ref: c.Ref, Steps: steps}
		if c.To == idem.Failed {
			res.Failure = &idem.Failure{Message: c.Message, Type: c.Type, Code: c.Code}
		}
		if s.sealed(rec) && (given != nil || len(c.bodies) > 0) {
			return action{}, errors.New("refused, and nothing was changed: the record's results are encrypted, and this one would not be: name the KMS key with --kms-key, or give no result")
		}
		if given != nil {
			if res.Result, err = given.encode(rec, b.store); err != nil {
				return action{}, err
			}
		}
		p := r.Preview(rec, res)
		return action{
			then: flags(p.Then), caution: p.Caution, records: res,
			shows: func(s *session) { c.shows(s, given, res.Result) },
			do:    func(ctx context.Context, by reconcile.Change) error { return r.Resolve(ctx, rec.ID, res, by) },
		}, d.refused(p)
	}
	if c.Limit > 0 {
		return s.decideMany(ctx, r, b, c.recordFlags, c.manyFlags, c.changeFlags, d)
	}
	return s.decide(ctx, r, b, c.recordFlags, c.changeFlags, d)
}

// shows writes what is recorded, of which a look at the files' names does not tell whether it
// is of this case. Who gave it may read it.
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
		return misuse("--undone is for --to failed, and for --to completed with a refusal or of what has failed and was undone")
	case c.To != idem.Released && len(c.Step) > 0:
		return misuse("--step is for --to released: the next call goes on with what became of it")
	case c.Limit > 0 && len(c.Step) > 0:
		return misuse("--step is of one record: leave out --limit")
	case c.Limit > 0 && c.Again != (c.Decision != ""):
		return misuse("--again and --decision belong together with --limit: idemctl changes names the decisions of many records")
	case c.Limit > 0 && c.Ref != "":
		return misuse("one reference cannot be that of many records, by which the provider is asked for each: leave out --ref, or resolve them one by one")
	case c.To != idem.Completed && (result || c.NoResult):
		return misuse("a result is for --to completed")
	case c.To == idem.Completed && result == c.NoResult:
		return misuse("--to completed needs the result that later calls get: --result, for an HTTP request --status with --header and --body; or --no-result")
	case c.Limit > 0 && result:
		return misuse("one result cannot be that of many records: use --no-result, or resolve them one by one")
	}
	if err := c.manyFlags.check(&c.recordFlags, &c.changeFlags); err != nil {
		return err
	}
	return c.resultFlags.check(c.Yes || c.DryRun)
}
