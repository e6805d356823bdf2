// Package runs is how a function under test asks the recorder of package rig what to do, and
// tells it how that ended. It reaches no test code.
package runs

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"strconv"
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
	text, err := r.post("begin", form)
	if err == nil {
		_, err = fmt.Sscanf(text, "%d %q", &r.Number, &r.Fate)
	}
	return r, err
}

// End tells how the run ended.
func (r Run) End(how string) error {
	_, err := r.post("end", url.Values{"n": {r.n}, "run": {strconv.Itoa(r.Number)}, "end": {how}})
	return err
}

// post speaks to the test, whatever time is left: it must know every run.
func (r Run) post(what string, form url.Values) (string, error) {
	res, err := http.PostForm(r.recorder+"/"+what, form)
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
