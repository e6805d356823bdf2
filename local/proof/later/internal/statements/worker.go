package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"syscall"

	"github.com/idem-go/idempotency/idem"
)

type worker struct{ recorder string }

// order is the body of a request.
type order struct {
	N   int    `json:"n"`
	Pad string `json:"pad"`
}

// made is the result of a run.
type made struct {
	N   int    `json:"n"`
	Run string `json:"run"`
}

// make does what the test says, and tells it how that ended.
func (w *worker) make(ctx context.Context, o order) (made, error) {
	info, ok := idem.InfoOf(ctx)
	if !ok {
		return made{}, errors.New("not inside an operation")
	}
	sum := sha256.Sum256([]byte(o.Pad))
	form := url.Values{
		"n": {strconv.Itoa(o.N)}, "pad": {hex.EncodeToString(sum[:])}, "tenant": {info.Tenant}, "operation": {info.Operation},
		"attempt": {strconv.Itoa(info.Attempt)}, "pid": {strconv.Itoa(os.Getpid())},
	}
	run, fate, err := w.begin(form)
	if err != nil {
		return made{}, err
	}
	switch fate {
	case "die":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "panic":
		panic("a panic")
	case "error":
		return made{}, errors.New("the printer does not answer")
	}
	if _, err := w.post("end", url.Values{"n": form["n"], "run": {run}}); err != nil {
		return made{}, err
	}
	switch fate {
	case "not executed":
		return made{}, idem.NotExecuted(errors.New("the printer is busy"))
	case "permanent":
		return made{}, idem.Permanent(errors.New("no such account"))
	}
	return made{o.N, run}, nil
}

func (w *worker) begin(form url.Values) (run, fate string, err error) {
	text, err := w.post("begin", form)
	if err == nil {
		_, err = fmt.Sscanf(text, "%s %q", &run, &fate)
	}
	return run, fate, err
}

// post speaks to the test, whatever time is left: it must know every run.
func (w *worker) post(what string, form url.Values) (string, error) {
	res, err := http.PostForm(w.recorder+"/"+what, form)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("the recorder answers %s: %s", res.Status, text)
	}
	return string(text), err
}
