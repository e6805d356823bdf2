package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/internal/view"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// resultFlags give the result that later calls get.
type resultFlags struct {
	Result          string   `placeholder:"FILE" help:"To completed: the handler's result as JSON; - is the standard input."`
	NoResult        bool     `help:"To completed: the result is not known; later calls get an error, over HTTP 409 outcome_unavailable."`
	Status          int      `placeholder:"STATUS" help:"To completed, of an HTTP request: the response's status."`
	Header          []string `sep:"none" placeholder:"NAME: VALUE" help:"A header of the response; repeat it for more."`
	Body            string   `placeholder:"FILE" help:"The response's body; - is the standard input."`
	ResponseVersion int      `placeholder:"N" help:"Version of the result's schema (idemhttp.Options.ResponseVersion)."`
}

// maxResult is more than Lambda can return.
const maxResult = 8 << 20

func (f *resultFlags) http() bool { return f.Status != 0 || len(f.Header) > 0 || f.Body != "" }

func (f *resultFlags) check(confirmed bool) error {
	switch {
	case f.Result != "" && f.http():
		return misuse("give either --result, or --status with --header and --body")
	case f.ResponseVersion != 0 && f.Result == "" && !f.http():
		return misuse("--response-version is of a result: give it with --result or --status")
	case f.http() && (f.Status < 200 || f.Status > 599):
		return misuse("--status is %d: a response that later calls get has 200 to 599", f.Status)
	case (f.Result == "-" || f.Body == "-") && !confirmed:
		return misuse("the standard input is the result, and cannot answer a question too: use --yes or --dry-run, or a file")
	}
	return nil
}

// given is a result before the record's codec.
type given struct {
	flags *resultFlags
	body  []byte
	// response is set once it is encoded, of an HTTP request.
	response *idemhttp.Response
}

// read reads the result; nil if there is none.
func (f *resultFlags) read(ctx context.Context, in io.Reader) (*given, error) {
	if f.Result == "" && !f.http() {
		return nil, nil
	}
	from := f.Result + f.Body // one of them is empty
	if from == "" {
		return &given{flags: f}, nil
	}
	if from != "-" {
		file, err := os.Open(from)
		if err != nil {
			return nil, misuse("the result cannot be read: %v", err)
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	body, err := io.ReadAll(io.LimitReader(interruptible{ctx, in}, maxResult+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the result cannot be read: %w", err)
	case len(body) > maxResult:
		return nil, misuse("the result has more than %d bytes: use --no-result", maxResult)
	}
	return &given{flags: f, body: body}, nil
}

// encode encodes the result as the record's calls read it.
func (g *given) encode(rec *idem.Record) (*protocol.Encoded, error) {
	var e protocol.Encoded
	var err error
	switch {
	case rec.Codec == "":
		if g.flags.http() {
			return nil, misuse("the record is not of an HTTP request: give its result as JSON with --result")
		}
		if !json.Valid(g.body) {
			return nil, misuse("the result is not JSON, which later calls could not read")
		}
		e, err = reconcile.Encode(json.RawMessage(g.body))
	case view.OverHTTP(rec.Codec):
		if !g.flags.http() {
			return nil, misuse("the record is of an HTTP request: give its response with --status, --header and --body")
		}
		if g.response, err = view.TypedResponse(g.flags.Status, g.flags.Header, g.body); err != nil {
			return nil, misuse("%v", err)
		}
		e, err = idemhttp.Encode(g.response)
	default:
		return nil, fmt.Errorf("the record's results are encoded as %q, which this command cannot write: use --no-result, "+
			"or a newer idemctl", rec.Codec)
	}
	if err != nil {
		return nil, err
	}
	e.ResponseVersion = g.flags.ResponseVersion
	return &e, nil
}

// shows writes the result as later calls get it: of a response what its encoded form keeps.
func (g *given) shows(s *session, e *protocol.Encoded) {
	from := ""
	if v := e.ResponseVersion; v != 0 {
		from = fmt.Sprintf(" of version %d", v)
	}
	if file := g.flags.Result + g.flags.Body; file != "" {
		from += ", " + source(file, g.body)
	}
	if !g.flags.http() {
		s.field("Result", "JSON%s:", from)
		s.excerpt(g.body)
		return
	}
	kept, dropped, err := view.Kept(*e, g.response)
	if err != nil {
		return // and is refused
	}
	s.field("Answer", "an HTTP response%s:", from)
	for _, line := range kept.Head() {
		fmt.Fprintln(s.out, line)
	}
	for _, name := range dropped {
		fmt.Fprintf(s.out, "(%s is not recorded: it is of one exchange)\n", line(name))
	}
	if len(g.body) > 0 {
		fmt.Fprintln(s.out)
		s.excerpt(g.body)
	}
	if doubt := kept.Doubt(); doubt != "" {
		s.field("Caution", "%s", s.paint(text.FgRed, doubt))
	}
}

// source is where bytes come from.
func source(file string, body []byte) string {
	if file == "-" {
		file = "the standard input"
	}
	return fmt.Sprintf("%s of %s", plural(len(body), "byte"), line(file))
}

// maxExcerpt is what is shown of what an operator gives, in bytes.
const maxExcerpt = 2 << 10

// excerpt writes text up to its limit.
func (s *session) excerpt(body []byte) {
	if !utf8.Valid(body) {
		fmt.Fprintln(s.out, "(it is no text)")
		return
	}
	shown := body[:min(len(body), maxExcerpt)]
	fmt.Fprintln(s.out, strings.TrimRight(view.Plain(strings.ToValidUTF8(string(shown), "")), "\n"))
	if left := len(body) - len(shown); left > 0 {
		fmt.Fprintf(s.out, "(and %s more)\n", plural(left, "byte"))
	}
}

// stepFlags say what became of interrupted steps.
type stepFlags struct {
	Step []string `sep:"none" placeholder:"NAME=WHAT" help:"To released: what became of an interrupted step: NAME=not-executed, NAME=done (it returns nothing; or its result is not known, at which most handlers fail for good, and if it has a compensation nothing is undone), NAME=failed:TEXT, or NAME=@FILE with its result as JSON, which is not null. Name all of them. Ask the provider with the step's token, which show prints."`

	bodies map[string][]byte // of the files, by step
}

// answers are what the flags say; nil if they say nothing.
func (f *stepFlags) answers() (map[string]reconcile.Answer, error) {
	if len(f.Step) == 0 {
		return nil, nil
	}
	all := map[string]reconcile.Answer{}
	f.bodies = map[string][]byte{}
	for _, given := range f.Step {
		name, what, _ := strings.Cut(given, "=")
		var a reconcile.Answer
		failed, isFailed := strings.CutPrefix(what, "failed:")
		path, isFile := strings.CutPrefix(what, "@")
		switch {
		case name == "":
			return nil, misuse("--step is %q: begin with the step's name", given)
		case what == "not-executed":
			a = reconcile.NotExecuted()
		case what == "done":
			a = reconcile.CompletedWithoutResult()
		case isFailed && failed != "":
			a = reconcile.FailedWith(idem.Failure{Message: failed})
		case isFile:
			body, err := os.ReadFile(path)
			if err != nil {
				return nil, misuse("the step's result cannot be read: %v", err)
			}
			switch {
			case !json.Valid(body):
				return nil, misuse("the step's result in %s is not JSON", path)
			case string(bytes.TrimSpace(body)) == "null":
				return nil, misuse("the step's result in %s is null, which a handler reads as the empty value of any type: give "+
					"what the step's function has returned, or use %s=done if it returns nothing or that is not known", path, name)
			}
			a = reconcile.CompletedWith(json.RawMessage(body))
			f.bodies[name] = body
		default:
			return nil, misuse("--step is %q: use NAME=not-executed, NAME=done, NAME=failed:TEXT or NAME=@FILE", given)
		}
		if _, twice := all[name]; twice {
			return nil, misuse("--step names %q twice: say once what became of it", name)
		}
		all[name] = a
	}
	return all, nil
}

// shows writes what is said of each step, and what its file holds.
func (f *stepFlags) shows(s *session) {
	for _, given := range f.Step {
		name, what, _ := strings.Cut(given, "=")
		file, isFile := strings.CutPrefix(what, "@")
		if !isFile {
			s.field("Step", "%s: %s", view.Plain(name), line(what))
			continue
		}
		s.field("Step", "%s: done, with %s:", view.Plain(name), source(file, f.bodies[name]))
		s.excerpt(f.bodies[name])
	}
}

// interruptible is an input that ends with the context: a terminal or a pipe may have nothing
// for long, and a read of it does not end by Ctrl-C.
type interruptible struct {
	ctx context.Context
	in  io.Reader
}

// Read leaves a read behind that has not ended. What that reads is lost.
func (r interruptible) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	type answer struct {
		n   int
		err error
	}
	own, done := make([]byte, len(p)), make(chan answer, 1)
	go func() {
		n, err := r.in.Read(own)
		done <- answer{n, err}
	}()
	select {
	case <-r.ctx.Done():
		return 0, r.ctx.Err()
	case a := <-done:
		return copy(p, own[:a.n]), a.err
	}
}

// record is a record as it is written as JSON, with its result if that is asked for.
type record struct {
	view.Record
	Result   string         `json:"result,omitempty"`
	Binary   []byte         `json:"result_base64,omitempty"` // a result that is no text
	Response *view.Response `json:"response,omitempty"`      // instead of both, for an HTTP request
	Messages []letter       `json:"messages,omitempty"`      // of the outbox, the earliest first
	// MoreMessages says that there are more than these.
	MoreMessages bool `json:"more_messages,omitempty"`
}

// reveal puts in the result: a response as its callers get it, anything else as it is stored.
func (d *record) reveal(result []byte) {
	if res, err := idemhttp.Decode(protocol.Encoded{Body: result, Codec: d.Codec}); err == nil {
		d.Response = view.ResponseOf(res)
	} else {
		d.Result, d.Binary = view.TextOr(result)
	}
}

// showResult writes a record's result for operators.
func (s *session) showResult(d record) {
	codec := cmp.Or(d.Codec, "JSON")
	switch {
	case d.Omitted:
		s.field("Result", "none recorded")
	case d.Response != nil:
		s.field("Result", "an HTTP response, stored in %s:", plural(d.Size, "byte"))
		s.showResponse(d.Response)
	case d.Binary != nil:
		s.field("Result", "%s, encoded as %s, and no text: read it with -o json", plural(d.Size, "byte"), codec)
	case d.Result != "":
		s.field("Result", "%s, encoded as %s:", plural(d.Size, "byte"), codec)
		fmt.Fprintln(s.out, view.Plain(d.Result))
	case d.State == idem.Completed && d.Sealed && len(s.globals.KMSKey) == 0:
		s.field("Result", "%s, encoded as %s, encrypted: name the KMS key with --kms-key to read it",
			plural(d.Size, "byte"), codec)
	case d.State == idem.Completed:
		s.field("Result", "%s, encoded as %s", plural(d.Size, "byte"), codec)
	}
}

// showResponse writes a response as it is on the wire.
func (s *session) showResponse(r *view.Response) {
	for _, line := range r.Head() {
		fmt.Fprintln(s.out, line)
	}
	switch {
	case r.Binary != nil:
		fmt.Fprintf(s.out, "\n(a body of %s that is no text: read it with -o json)\n", plural(len(r.Binary), "byte"))
	case r.Body != "":
		fmt.Fprintln(s.out, "\n"+view.Plain(r.Body))
	}
}
