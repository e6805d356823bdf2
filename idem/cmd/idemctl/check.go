package main

import (
	"context"
	"fmt"

	"github.com/idem-go/idempotency/idem/internal/view"
)

type checkCmd struct{}

func (c *checkCmd) Run(ctx context.Context, s *session) error {
	b, err := s.open(ctx, s.globals)
	if err != nil {
		return err
	}
	err = b.check(ctx)
	if s.json() {
		report := struct {
			Table    string `json:"table"`
			OK       bool   `json:"ok"`
			Problems string `json:"problems,omitempty"`
		}{Table: s.globals.Table, OK: err == nil}
		if err != nil {
			report.Problems = err.Error()
		}
		if werr := s.writeJSON(report); werr != nil {
			return werr
		}
	}
	if err != nil {
		return err
	}
	if !s.json() {
		fmt.Fprintf(s.out, "Table %s is as it must be: its keys, its index and its TTL.\n", view.Plain(s.globals.Table))
	}
	return nil
}
