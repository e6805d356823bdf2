package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/secrets"
)

// secretsCmd is about the secrets that an operation's records are under.
type secretsCmd struct {
	Show   secretsShowCmd   `cmd:"" help:"Show which secrets an operation's records may be under, by their check values."`
	Retire secretsRetireCmd `cmd:"" help:"Take the oldest secret out of use, once no record lives under it."`
}

// secretsShowCmd shows a register.
type secretsShowCmd struct {
	Operation string `required:"" placeholder:"NAME" help:"The operation."`
}

// usedSecret is a secret of a register as it is written as JSON.
type usedSecret struct {
	Check   string    `json:"check"`
	Since   time.Time `json:"since"`
	Retired bool      `json:"retired,omitempty"`
}

// Run runs the command.
func (c *secretsShowCmd) Run(ctx context.Context, s *session) error {
	store, _, operation, err := s.registers(ctx, c.Operation)
	if err != nil {
		return err
	}
	reg, err := store.Register(ctx, operation)
	if err != nil {
		return err
	}
	all := []usedSecret{}
	if reg != nil {
		for _, one := range reg.Secrets {
			all = append(all, usedSecret{one.Check, one.Since.UTC(), one.Retired})
		}
	}
	if s.json() {
		return s.writeJSON(all)
	}
	if len(all) == 0 {
		fmt.Fprintln(s.out, "No process has used the operation with secrets.")
	}
	for _, one := range all {
		note := ""
		if one.Retired {
			note = ", retired"
		}
		fmt.Fprintf(s.out, "%-16s  in use since %s%s\n", line(one.Check), at(one.Since), note)
	}
	return nil
}

// secretsRetireCmd takes a secret out of a register.
type secretsRetireCmd struct {
	Operation string  `required:"" placeholder:"NAME" help:"The operation."`
	Yes       bool    `help:"Do not ask."`
	Rate      float64 `default:"500" placeholder:"UNITS" help:"At most so many read units a second, which the functions lack."`
}

// Run runs the command.
func (c *secretsRetireCmd) Run(ctx context.Context, s *session) error {
	store, b, operation, err := s.registers(ctx, c.Operation)
	if err != nil {
		return err
	}
	if s.undated {
		return errUndated
	}
	check, err := secrets.Retire(ctx, store, operation, s.now(), func(look func(string, *protocol.Record) error) error {
		var failed error
		err := s.scan(ctx, b, reconcile.Filter{Operations: []string{c.Operation}}, allFlags{All: true, Yes: c.Yes, Rate: c.Rate},
			func(rec *idem.Record) error { return look(rec.ID, rec) },
			func(id string) { failed = errors.Join(failed, look(id, nil)) })
		return errors.Join(err, failed)
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "%s is retired. Leave the secret out of the lists of all processes, and destroy it.\n", check)
	return nil
}

// registers opens the table for what is done with an operation's register; operation is its name
// in ids.
func (s *session) registers(ctx context.Context, name string) (store protocol.Rotation, b *backend, operation string, err error) {
	key := idem.Operation{Name: name}.Key(idem.SingleTenant, "any")
	if err := key.Err(); err != nil {
		return nil, nil, "", misuse("%v", err)
	}
	if _, b, err = s.reconciler(ctx); err != nil {
		return nil, nil, "", err
	}
	store, ok := b.store.(protocol.Rotation)
	if !ok {
		return nil, nil, "", errors.New("this store keeps no registers of secrets")
	}
	return store, b, strings.Split(key.ID(), "#")[1], nil
}

// encoded begins a line of a file with secrets that is not the secret itself.
const encoded = "base64:"

// secretsIn reads a file with a secret a line, the current one first.
func secretsIn(file string) (protocol.Digester, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, misuse("the operation's secrets: %v", err)
	}
	var all [][]byte
	for one := range bytes.Lines(text) {
		one = bytes.TrimRight(one, "\r\n")
		if coded, ok := bytes.CutPrefix(one, []byte(encoded)); ok {
			if one, err = base64.StdEncoding.DecodeString(string(coded)); err != nil {
				return nil, misuse("the operation's secrets: line %d of %s is no base64 after %q", len(all)+1, file, encoded)
			}
		}
		all = append(all, one)
	}
	if len(all) == 0 {
		return nil, misuse("the operation's secrets: %s is empty", file)
	}
	return secrets.New(all[0], all[1:]...), nil
}
