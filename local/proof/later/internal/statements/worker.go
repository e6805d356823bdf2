package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/url"
	"os"
	"syscall"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/local/proof/rig/runs"
)

type worker struct{ recorder string }

// order is the body of a request.
type order struct {
	N   int    `json:"n"`
	Pad string `json:"pad"`
}

// made is the result of a run.
type made struct {
	N   int `json:"n"`
	Run int `json:"run"`
}

// make does what the test says, and tells it how that ended.
func (w *worker) make(ctx context.Context, o order) (made, error) {
	info, ok := idem.InfoOf(ctx)
	if !ok {
		return made{}, errors.New("not inside an operation")
	}
	sum := sha256.Sum256([]byte(o.Pad))
	about := url.Values{"pad": {hex.EncodeToString(sum[:])}, "tenant": {info.Tenant}, "operation": {info.Operation}}
	run, err := runs.Begin(w.recorder, o.N, info.Attempt, about)
	if err != nil {
		return made{}, err
	}
	switch run.Fate {
	case "die":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "panic":
		panic("a panic")
	case "error":
		return made{}, errors.New("the printer does not answer")
	}
	if err := run.End(run.Fate); err != nil {
		return made{}, err
	}
	switch run.Fate {
	case "not executed":
		return made{}, idem.NotExecuted(errors.New("the printer is busy"))
	case "permanent":
		return made{}, idem.Permanent(errors.New("no such account"))
	}
	return made{o.N, run.Number}, nil
}
