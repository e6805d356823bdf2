package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/idem-go/idempotency/idem/internal/keys"
	"github.com/idem-go/idempotency/idem/protocol"
)

type checkCmd struct{}

// sampled are the items whose keys are looked at, of one page: 1 MB and 128 read units at most.
const sampled = 1000

// keySample is what a sample of the table says about the callers' keys.
type keySample struct {
	// Seen are the keys that records keep, Guessable those by operation that are easy to guess.
	Seen      int            `json:"seen"`
	Guessable map[string]int `json:"guessable,omitempty"`
}

func (c *checkCmd) Run(ctx context.Context, s *session) error {
	wrong := s.table.check(ctx)
	report := struct {
		Table    string     `json:"table"`
		OK       bool       `json:"ok"`
		Problems string     `json:"problems,omitempty"`
		Keys     *keySample `json:"keys,omitempty"`
	}{Table: s.globals.Table, OK: wrong == nil}
	var unseen error
	if wrong != nil {
		report.Problems = wrong.Error()
	} else {
		report.Keys, unseen = s.sampleKeys(ctx)
	}
	err := s.print(report, func() {
		if wrong == nil {
			what, about := s.globals.where()
			fmt.Fprintf(s.out, "%s is as it must be%s.\n", what, about)
		}
		if report.Keys != nil {
			s.keys(report.Keys)
		}
	})
	if denied(unseen) {
		say(s.err, "The callers' keys were not looked at: that needs Table.GrantScanner.")
		unseen = nil
	}
	return errors.Join(err, wrong, unseen)
}

// sampleKeys looks at the first records of the table, which are in the order of a hash of their ids.
func (s *session) sampleKeys(ctx context.Context) (*keySample, error) {
	page, err := s.table.scanner.Scan(ctx, protocol.ScanQuery{Segments: 1, Limit: sampled})
	if err != nil {
		return nil, err
	}
	k := &keySample{Guessable: map[string]int{}}
	for _, rec := range page.Records {
		if rec.Value == "" {
			continue
		}
		k.Seen++
		// Of joined values the last one is the client's.
		if keys.Guessable(rec.Value[strings.LastIndexByte(rec.Value, '/')+1:]) {
			_, operation, _ := protocol.ParseRecordID(rec.ID)
			k.Guessable[operation]++
		}
	}
	return k, nil
}

// keys writes what the sample says.
func (s *session) keys(k *keySample) {
	say(s.out, "Keys of callers in a sample, where operations keep them (KeepValues): %d. Digests show nothing.", k.Seen)
	if len(k.Guessable) == 0 {
		return
	}
	say(s.out, "Easy to guess, one repeated character or a number of fewer than 8 digits, are:")
	for _, operation := range slices.Sorted(maps.Keys(k.Guessable)) {
		s.item(fmt.Sprintf("%s: %d", line(operation), k.Guessable[operation]))
	}
}
