package main

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// recordFlags name one record.
type recordFlags struct {
	ID        string `arg:"" optional:"" help:"The record's id, as list shows it. Or name its key with flags."`
	Operation string `placeholder:"NAME" help:"Operation of the key."`
	Tenant    string `placeholder:"NAME" help:"Tenant of the key."`
	NoTenant  bool   `help:"The key has no tenant."`
	Value     string `placeholder:"VALUE" help:"The caller's value of the key: over HTTP the Idempotency-Key, without quotes."`
	Principal string `placeholder:"NAME" help:"Over HTTP: who within the tenant sent it, if the service tells them apart (idemhttp.Options.Principal)."`
	Secrets   string `name:"secret-file" placeholder:"FILE" help:"File with the operation's secrets (package secrets), if it has some: one a line, the current one first, as it is or as base64:..."`
}

// key is the record's, or its id alone.
func (f *recordFlags) key() (id string, key idem.Key, err error) {
	named := f.Operation != "" || f.Tenant != "" || f.NoTenant || f.Value != "" || f.Principal != "" || f.Secrets != ""
	misuse := func(format string, args ...any) (string, idem.Key, error) {
		return "", idem.Key{}, misuse(format, args...)
	}
	switch {
	case f.ID != "" && named:
		return misuse("give the record's id, or --operation, --tenant and --value, but not both")
	case f.ID != "":
		if live, _ := protocol.LiveID(f.ID); strings.Count(live, "#") != 2 {
			return misuse("%q is no record's id: it has the form tenant#operation#digest, and list shows it; in a shell put it in quotes", f.ID)
		}
		return f.ID, key, nil
	case !named:
		return misuse("name the record: by its id, or by --operation, --tenant (or --no-tenant) and --value")
	case f.Operation == "" || f.Value == "":
		return misuse("a key needs --operation and --value")
	case (f.Tenant == "") == !f.NoTenant:
		return misuse("a key needs either --tenant or --no-tenant")
	}
	tenant := f.Tenant
	if f.NoTenant {
		tenant = idem.SingleTenant
	}
	op := idem.Operation{Name: f.Operation}
	if f.Secrets != "" {
		if op.Secrets, err = secretsIn(f.Secrets); err != nil {
			return "", key, err
		}
	}
	key = op.Key(tenant, idemhttp.KeyValue(f.Principal, f.Value))
	if err := key.Err(); err != nil {
		return misuse("%v", err)
	}
	return "", key, nil
}

// find reads the record that the flags name; nil if there is none.
func (f *recordFlags) find(ctx context.Context, r *reconcile.Reconciler) (string, *idem.Record, error) {
	id, key, err := f.key()
	if err == nil && id == "" {
		id, err = r.Find(ctx, key)
	}
	if err != nil {
		return "", nil, err
	}
	rec, err := r.Lookup(ctx, id)
	if rec != nil {
		id = rec.ID // it may have moved
	}
	return id, rec, err
}

// must is find for those that need a record.
func (f *recordFlags) must(ctx context.Context, r *reconcile.Reconciler) (string, *idem.Record, error) {
	id, rec, err := f.find(ctx, r)
	if err == nil && rec == nil {
		err = fmt.Errorf("there is no record %s: check operation, tenant, value, principal and secrets, --table and --region; it may have expired", id)
	}
	return id, rec, err
}

// record is how a record is written as JSON: without its value, its result and the text of
// its error, unless they are asked for.
type record struct {
	ID         string         `json:"id"`
	Tenant     string         `json:"tenant,omitempty"`
	Operation  string         `json:"operation"`
	Shadow     bool           `json:"shadow,omitempty"` // a trial's, no outcome of the live mode
	Value      string         `json:"value,omitempty"`
	State      idem.State     `json:"state"`
	Repeatable bool           `json:"repeatable"`
	Attempt    int            `json:"attempt"`
	CreatedAt  time.Time      `json:"created_at"`
	UpdatedAt  time.Time      `json:"updated_at"`
	LeaseUntil time.Time      `json:"lease_until,omitzero"`
	ExpiresAt  time.Time      `json:"expires_at,omitzero"`
	OpenSince  time.Time      `json:"open_since,omitzero"`
	Due        time.Time      `json:"due,omitzero"`
	Probes     int            `json:"probes,omitempty"`
	GivenUpAt  time.Time      `json:"given_up_at,omitzero"`
	Resolved   bool           `json:"resolved,omitempty"`
	Uncertain  bool           `json:"uncertain,omitempty"`
	Ref        string         `json:"ref,omitempty"`
	Token      string         `json:"token"`
	Codec      string         `json:"codec,omitempty"`
	Size       int            `json:"result_size,omitempty"`
	Omitted    bool           `json:"result_omitted,omitempty"`
	Sealed     bool           `json:"results_encrypted,omitempty"`
	Result     string         `json:"result,omitempty"`
	Binary     []byte         `json:"result_base64,omitempty"` // a result that is no text
	Response   *response      `json:"response,omitempty"`      // instead of both, for an HTTP request
	Failure    *failure       `json:"failure,omitempty"`
	Steps      []recordedStep `json:"steps,omitempty"`
	// Write is what a change may be made conditional on.
	Write string `json:"write"`
}

type failure struct {
	Type    string `json:"type,omitempty"`
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
}

type recordedStep struct {
	Name        string   `json:"name"`
	State       string   `json:"state"`
	Interrupted bool     `json:"interrupted,omitempty"` // ask the provider with Token
	Token       string   `json:"token"`
	Compensates bool     `json:"compensates,omitempty"`
	Undone      bool     `json:"undone,omitempty"`
	Failure     *failure `json:"failure,omitempty"`
}

// reveal says what of a record is shown that may be personal or secret.
type reveal struct {
	ShowValue  bool `help:"Show the caller's value, if the record keeps it."`
	ShowError  bool `help:"Show the text of errors, which may have personal data."`
	ShowResult bool `help:"Show the result, and the text of a recorded failure."`
}

// describe makes of a record what may be shown of it. The result is read by who needs it.
func describe(rec *idem.Record, show reveal) record {
	tenant, operation := namesOf(rec.ID)
	d := record{
		ID: rec.ID, Tenant: tenant, Operation: operation, State: rec.State, Repeatable: rec.Repeat == protocol.Repeatable,
		Attempt: rec.Attempt, CreatedAt: rec.CreatedAt, UpdatedAt: rec.UpdatedAt, LeaseUntil: rec.LeaseUntil, ExpiresAt: rec.ExpiresAt,
		OpenSince: rec.OpenSince, Due: rec.Due, Probes: rec.Probes, GivenUpAt: rec.GivenUpAt, Resolved: rec.Resolved, Uncertain: rec.Uncertain,
		Ref: rec.Ref, Token: protocol.Token(rec.ID, ""), Codec: rec.Codec, Size: max(rec.Body.Size, 0), Omitted: rec.Omitted, Sealed: rec.Sealed, Write: rec.Write,
	}
	if _, d.Shadow = protocol.LiveID(rec.ID); show.ShowValue {
		d.Value = rec.Value
	}
	text := show.ShowError
	if rec.State == idem.Failed {
		text = text || show.ShowResult
	}
	d.Failure = describeFailure(rec.Failure, text)
	for _, name := range slices.Sorted(maps.Keys(rec.Steps)) {
		s := rec.Steps[name]
		d.Steps = append(d.Steps, recordedStep{
			Name: name, State: stepState(s), Interrupted: s.Begun, Token: protocol.Token(rec.ID, name), Compensates: s.Compensates, Undone: rec.Undone(name),
			Failure: describeFailure(s.Failure, text),
		})
	}
	return d
}

func describeFailure(f *idem.Failure, text bool) *failure {
	if f == nil {
		return nil
	}
	d := &failure{Type: f.Type, Code: f.Code}
	if text {
		d.Message = f.Message
	}
	return d
}

func stepState(s protocol.RecordedStep) string {
	switch {
	case s.Begun:
		return "begun, without outcome"
	case s.NotExecuted:
		return "not executed"
	case s.Omitted:
		return "done, without result"
	case s.Failure != nil:
		return "failed"
	}
	return "done"
}

// namesOf reads tenant and operation from a record's id.
func namesOf(id string) (tenant, operation string) {
	t, rest, _ := strings.Cut(id, "#")
	o, _, _ := strings.Cut(rest, "#")
	plain := func(s string) string {
		if u, err := url.PathUnescape(s); err == nil {
			return u
		}
		return s
	}
	return plain(t), plain(o)
}

// since is when a record came to have no outcome.
func since(rec *idem.Record) time.Time {
	if rec.OpenSince.IsZero() {
		return rec.LeaseUntil
	}
	return rec.OpenSince
}
