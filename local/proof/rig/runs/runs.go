// Package runs is how a function under test asks the recorder of package rig what to do, has its
// effect there, and says how it ended. It reaches no test code.
package runs

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/idem-go/idempotency/idem"
)

// Run is one time that the function runs.
type Run struct {
	Number int // of the runs of the same request, from 1
	Fate   string

	recorder, n string
}

// Begin tells the recorder at the URL that an attempt at request n runs in this process, with
// what else there is to say about it.
func Begin(recorder string, n, attempt int, about url.Values) (Run, error) {
	r := Run{recorder: recorder, n: strconv.Itoa(n)}
	form := url.Values{"n": {r.n}, "attempt": {strconv.Itoa(attempt)}, "pid": {strconv.Itoa(os.Getpid())}}
	maps.Copy(form, about)
	text, err := Post(recorder+"/begin", form)
	if err == nil {
		_, err = fmt.Sscanf(text, "%d %q", &r.Number, &r.Fate)
	}
	return r, err
}

// Effect is the run's effect outside of the table: one under a token, one for each call without a token.
// At the time until it is refused; a zero time is never.
func (r Run) Effect(token string, until time.Time) error {
	form := url.Values{"n": {r.n}, "run": {strconv.Itoa(r.Number)}, "token": {token}}
	if !until.IsZero() {
		form.Set("until", until.Format(time.RFC3339Nano))
	}
	_, err := Post(r.recorder+"/effect", form)
	return err
}

// Act does what the fate says, with the effect if the fate has one, and says how that ended.
func (r Run) Act(effect func() error) error {
	end, err := r.act(effect)
	form := url.Values{"n": {r.n}, "run": {strconv.Itoa(r.Number)}, "end": {end}}
	if _, failed := Post(r.recorder+"/end", form); failed != nil {
		return failed
	}
	if end == "panic" {
		panic("a panic")
	}
	return err
}

// Declined is a permanent failure. Its text is of the run.
type Declined struct{ Run int }

func (d *Declined) Error() string { return fmt.Sprint("declined by run ", d.Run) }

func (r Run) act(effect func() error) (end string, err error) {
	switch r.Fate {
	case "die before":
		die()
	case "not executed":
		return r.Fate, idem.NotExecuted(errors.New("the provider is closed"))
	case "permanent":
		return r.Fate, idem.Permanent(&Declined{r.Number})
	case "error before":
		return "error", errors.New("the provider does not answer")
	case "panic before":
		return "panic", nil
	case "hang":
		select {}
	}
	if err := effect(); err != nil {
		return "error", err
	}
	switch r.Fate {
	case "die after":
		die()
	case "error after":
		return "error", errors.New("the reply was lost")
	case "panic after":
		return "panic", nil
	}
	return "ok", nil
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// Post speaks to the test, whatever time is left: it must know every run.
func Post(to string, form url.Values) (string, error) {
	res, err := http.PostForm(to, form)
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
