package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"strings"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/secrets"
)

// recordFlags name one record.
type recordFlags struct {
	ID        string `arg:"" optional:"" help:"The record's id, as list shows it. Or name its key with flags."`
	Operation string `placeholder:"NAME" help:"Operation of the key."`
	Tenant    string `placeholder:"NAME" help:"Tenant of the key."`
	NoTenant  bool   `help:"The key has no tenant."`
	Value     string `placeholder:"VALUE" help:"The caller's value of the key: over HTTP the Idempotency-Key, without quotes."`
	Principal string `placeholder:"NAME" help:"Over HTTP: who within the tenant sent it, if the service tells them apart (idemhttp.Options.Principal)."`
	Secret    string `name:"secret-file" placeholder:"FILE" help:"File with the operation's secret (package secrets), if it has one: as it is or as base64:..."`
}

// key is the record's, or its id alone.
func (f *recordFlags) key() (id string, key idem.Key, err error) {
	named := f.Operation != "" || f.Tenant != "" || f.NoTenant || f.Value != "" || f.Principal != "" || f.Secret != ""
	misuse := func(format string, args ...any) (string, idem.Key, error) {
		return "", idem.Key{}, misuse(format, args...)
	}
	switch {
	case f.ID != "" && named:
		return misuse("give the record's id, or --operation, --tenant and --value, but not both")
	case f.ID != "":
		if live, _ := protocol.LiveID(f.ID); strings.Count(live, "#") != 2 {
			return misuse("%q is no record's id: it has the form tenant#operation#digest, and list shows it; in a shell "+
				"put it in quotes", f.ID)
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
	if f.Secret != "" {
		if op.Values, err = secretIn(f.Secret); err != nil {
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
	if err != nil {
		return "", nil, err
	}
	if id == "" {
		id = key.ID()
	}
	rec, err := r.Lookup(ctx, id)
	return id, rec, err
}

// must is find for those that need a record.
func (f *recordFlags) must(ctx context.Context, r *reconcile.Reconciler) (string, *idem.Record, error) {
	id, rec, err := f.find(ctx, r)
	if err == nil && rec == nil {
		err = fmt.Errorf("there is no record %s: check operation, tenant, value, principal and secret, --table "+
			"and --region; it may have expired, or was forgotten, which idemctl history says", id)
	}
	return id, rec, err
}

// encoded begins a file whose secret is in base64.
const encoded = "base64:"

// secretIn reads an operation's secret from a file, without the line end behind it.
func secretIn(file string) (*secrets.Secret, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, misuse("the operation's secret: %v", err)
	}
	text = bytes.TrimRight(text, "\r\n")
	coded, ok := bytes.CutPrefix(text, []byte(encoded))
	if !ok {
		return secrets.New(text), nil
	}
	key, err := base64.StdEncoding.DecodeString(string(coded))
	if err != nil {
		return nil, misuse("the operation's secret: what %s has after %q is no base64", file, encoded)
	}
	return secrets.New(key), nil
}
