package main

import (
	"bytes"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// full is a disk that is full.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestAnAnswerThatCannotBeWrittenIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.unknown(r1)
		for _, args := range [][]string{
			{"list"}, {"list", "-o", "json"}, {"show", r1.ID()}, {"explain", r1.ID()}, {"history", r1.ID()}, {"stats"}, {"changes"}, {"dead", "list"},
			{"check"}, {"export"},
			{"forget", refund.Key("acme", "r-2").ID(), "--dry-run", "--reason", "a look"},
		} {
			var errs bytes.Buffer
			require.Equal(t, exitFailed, b.runTo(full{}, &errs, args...), "%v: %s", args, errs.String())
		}
	})
}
