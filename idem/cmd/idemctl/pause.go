package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/view"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// callsFlags say which calls are paused or resumed.
type callsFlags struct {
	Operation string `arg:"" help:"The operation's name, as ids have it."`
	Tenant    string `placeholder:"NAME" help:"The calls of this tenant only."`
	whyFlags
	Yes bool `help:"Do not ask."`
}

func (c callsFlags) calls() string { return view.Calls(c.Operation, c.Tenant) }

type pauseCmd struct {
	callsFlags
	For time.Duration `placeholder:"2h" help:"It ends by itself after so long, in hours and minutes, such as 48h; else resume ends it."`
}

func (c *pauseCmd) check() error {
	if c.For != 0 && c.For < time.Second {
		return misuse("--for is %v: it is 1s at least", c.For)
	}
	return nil
}

// takesEffect says when functions see a change of what is paused.
const takesEffect = "Functions that are set up for it (package pause) see it within 5 seconds."

func (c *pauseCmd) Run(ctx context.Context, s *session) error {
	var until time.Time
	lasts := "until it is resumed"
	if c.For > 0 {
		until = s.now().Add(c.For)
		lasts = "until " + when(until, s.now())
	}
	return s.changePaused(ctx, c.callsFlags, protocol.ChangePaused,
		fmt.Sprintf("pause %s, %s. %s", c.calls(), lasts, takesEffect),
		"what would begin to execute does not: over HTTP it gets 503 operation_paused, and a message is delivered again. "+
			"What is recorded is replayed, and what runs goes on to its end.",
		func(ctx context.Context, by reconcile.Change) error {
			return s.records.Pause(ctx, c.Operation, c.Tenant, until, by)
		})
}

type resumeCmd struct{ callsFlags }

func (c *resumeCmd) Run(ctx context.Context, s *session) error {
	return s.changePaused(ctx, c.callsFlags, protocol.ChangeResumed,
		fmt.Sprintf("resume %s. %s", c.calls(), takesEffect),
		"they execute, unless they are paused otherwise. A message that was hidden comes again within 15 minutes.",
		func(ctx context.Context, by reconcile.Change) error {
			return s.records.Resume(ctx, c.Operation, c.Tenant, by)
		})
}

// pauseChange is what a change of what is paused writes as JSON.
type pauseChange struct {
	Change    protocol.Change `json:"change"`
	Operation string          `json:"operation"`
	Tenant    string          `json:"tenant,omitempty"`
	DryRun    bool            `json:"dry_run,omitempty"`
}

// changePaused shows what is paused of the operation and what the change does, asks, and makes it.
func (s *session) changePaused(ctx context.Context, c callsFlags, change protocol.Change, what, then string,
	do func(context.Context, reconcile.Change) error) error {
	by, err := s.by(ctx, c.whyFlags)
	if err != nil {
		return err
	}
	paused, err := s.records.Paused(ctx)
	if err != nil {
		return err
	}
	shown, found := s.aside(), false
	for _, p := range paused {
		if p.Operation == c.Operation {
			shown.pause(p)
			if p.Tenant == c.Tenant {
				found, by.IfWrite = true, p.Digest()
			}
		}
	}
	if change == protocol.ChangeResumed && !found {
		return fmt.Errorf("nothing was changed, since this is no pause of its own: %s: idemctl pauses lists all",
			c.calls())
	}
	shown.field("This will", "%s", what)
	shown.field("Then", "%s", then)
	shown.signed(by)
	report := pauseChange{Change: change, Operation: c.Operation, Tenant: c.Tenant, DryRun: c.DryRun}
	if c.DryRun {
		fmt.Fprintln(shown.out, "Dry run: nothing was written.")
		return s.reported(report)
	}
	if !c.Yes {
		if err := s.ask(ctx, "Type yes to do it: ", "yes", "--yes", "changed"); err != nil {
			return err
		}
	}
	if err := s.carryOut(ctx, do, by, "pauses"); err != nil {
		return err
	}
	fmt.Fprintln(shown.out, "Done.")
	return s.reported(report)
}

// pause writes one pause.
func (s *session) pause(p protocol.Pause) {
	fmt.Fprintln(s.out, "Paused: "+view.Calls(p.Operation, p.Tenant))
	s.item("since " + when(p.Since, s.now()))
	if !p.Until.IsZero() {
		s.item("until " + when(p.Until, s.now()))
	}
	s.item("by " + line(p.Who))
	s.item("why: " + line(p.Why))
}

// pausesOf are those of calls with a record's key.
func (s *session) pausesOf(ctx context.Context, id string) ([]protocol.Pause, error) {
	paused, err := s.records.Paused(ctx)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, nil
	}
	tenant, operation, _ := protocol.ParseRecordID(id)
	return slices.DeleteFunc(paused, func(p protocol.Pause) bool {
		return p.Ended(s.now()) || !p.Covers(cmp.Or(tenant, idem.SingleTenant), operation)
	}), err
}

type pausesCmd struct{}

func (c *pausesCmd) Run(ctx context.Context, s *session) error {
	paused, err := s.records.Paused(ctx)
	if err != nil {
		return err
	}
	return s.print(append([]protocol.Pause{}, paused...), func() {
		for _, p := range paused {
			s.pause(p)
		}
		if len(paused) == 0 {
			fmt.Fprintln(s.out, "Nothing is paused.")
		}
	})
}
