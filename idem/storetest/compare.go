package storetest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// same requires that the store's record says what the reference's does, its
// result included. How a result is stored is the store's own.
func (c *cell) same(where string, want, got *protocol.Record) {
	c.Helper()
	if want == nil || got == nil {
		if want != nil || got != nil {
			c.fatalf("%s: want %s, got %s", where, describe(want), describe(got))
		}
		return
	}
	if d := differences(want, got); len(d) > 0 {
		c.fatalf("%s differs from the reference:\n\t%s", where, strings.Join(d, "\n\t"))
	}
	if want.State != protocol.Completed {
		return
	}
	body, err := c.store.Result(c.ctx, got)
	if err != nil {
		c.fatalf("%s: Result: %v", where, err)
	}
	if !bytes.Equal(want.Body.Data, body) {
		c.fatalf("%s: the result differs: want %d bytes %.40q, got %d bytes %.40q",
			where, len(want.Body.Data), want.Body.Data, len(body), body)
	}
}

func differences(want, got *protocol.Record) []string {
	var d []string
	note := func(field string, want, got any) {
		d = append(d, fmt.Sprintf("%s: want %v, got %v", field, want, got))
	}
	plain := func(field string, want, got any) {
		if want != got {
			note(field, want, got)
		}
	}
	at := func(field string, want, got time.Time) {
		if !want.Equal(got) || want.IsZero() != got.IsZero() {
			note(field, want, got)
		}
	}
	plain("ID", want.ID, got.ID)
	plain("Value", want.Value, got.Value)
	plain("Codec", want.Codec, got.Codec)
	plain("Ticket", want.Ticket, got.Ticket)
	plain("State", want.State, got.State)
	plain("Repeat", want.Repeat, got.Repeat)
	plain("Fingerprint", want.Fingerprint, got.Fingerprint)
	plain("Owner", want.Owner, got.Owner)
	plain("Attempt", want.Attempt, got.Attempt)
	plain("Write", want.Write, got.Write)
	plain("Seen", want.Seen, got.Seen)
	at("LeaseUntil", want.LeaseUntil, got.LeaseUntil)
	at("ExpiresAt", want.ExpiresAt, got.ExpiresAt)
	plain("Retention", want.Retention, got.Retention)
	at("CreatedAt", want.CreatedAt, got.CreatedAt)
	at("UpdatedAt", want.UpdatedAt, got.UpdatedAt)
	plain("Uncertain", want.Uncertain, got.Uncertain)
	plain("Omitted", want.Omitted, got.Omitted)
	plain("Failure", failure(want.Failure), failure(got.Failure))
	plain("Ref", want.Ref, got.Ref)
	plain("Resolved", want.Resolved, got.Resolved)
	plain("RefWrite", want.RefWrite, got.RefWrite)
	plain("Unsettled", want.Unsettled, got.Unsettled)
	at("Due", want.Due, got.Due)
	at("OpenSince", want.OpenSince, got.OpenSince)
	plain("Sweep", want.Sweep, got.Sweep)
	plain("Probes", want.Probes, got.Probes)
	at("EscalatedAt", want.EscalatedAt, got.EscalatedAt)
	plain("ResponseVersion", want.ResponseVersion, got.ResponseVersion)
	plain("Body.Size", want.Body.Size, got.Body.Size)
	if want.State != protocol.Completed {
		plain("Body.Parts", 0, got.Body.Parts)
		plain("length of Body.Data", 0, len(got.Body.Data))
	}
	plain("names of Steps", stepNames(want), stepNames(got))
	for name, s := range want.Steps {
		g := got.Steps[name]
		plain("Begun of step "+name, s.Begun, g.Begun)
		plain("Write of step "+name, s.Write, g.Write)
		plain("FromResolution of step "+name, s.FromResolution, g.FromResolution)
		plain("NotExecuted of step "+name, s.NotExecuted, g.NotExecuted)
		at("BegunAt of step "+name, s.BegunAt, g.BegunAt)
		plain("Omitted of step "+name, s.Omitted, g.Omitted)
		plain("Compensates of step "+name, s.Compensates, g.Compensates)
		plain("Failure of step "+name, failure(s.Failure), failure(g.Failure))
		plain("Body.Size of step "+name, s.Body.Size, g.Body.Size)
	}
	return d
}

func failure(f *protocol.Failure) string {
	if f == nil {
		return "none"
	}
	return fmt.Sprintf("%q", *f)
}

func stepNames(r *protocol.Record) string {
	names := make([]string, 0, len(r.Steps))
	for n := range r.Steps {
		names = append(names, fmt.Sprintf("%q", n))
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}
