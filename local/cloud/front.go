package cloud

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/idem/testenv/child"
	"github.com/idem-go/idempotency/local/aws/runtime"
)

// Call is a call of a function to a service.
type Call struct {
	// Function is the name of the function; empty if the call has other credentials than its own.
	Function string
	// Trace is that of the invocation that makes the call; empty if there is none.
	Trace string
	// Service and Operation, such as dynamodb and PutItem.
	Service, Operation string
	Header             http.Header
	Body               []byte

	invokes string // the function that Invoke of Lambda names, with its version if it has one
}

// front is what functions have in place of AWS: all their calls come here. It passes them on to the servers of this
// machine, and knows by its credentials which function makes a call, and by the trace in which invocation.
type front struct {
	running *Running
	proxy   *httputil.ReverseProxy

	mu            sync.Mutex
	functions     map[string]string // by access key
	invocations   map[string]*Invocation
	interruptions map[string]Interruption // by function
}

func newFront(r *Running) *front {
	f := &front{running: r, functions: map[string]string{}, invocations: map[string]*Invocation{},
		interruptions: map[string]Interruption{}}
	f.proxy = &httputil.ReverseProxy{
		// The host is part of the signature: it stays what the function signed.
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(f.server(signatureOf(p.In).service))
			p.Out.Host = p.In.Host
		},
		Transport: &http.Transport{MaxIdleConnsPerHost: 64},
		// A function that is killed breaks its connections.
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	return f
}

// server is where a service is; nil if it is not here.
func (f *front) server(service string) *url.URL {
	var server *child.Server
	f.running.mu.Lock()
	switch service {
	case "dynamodb":
		server = f.running.tables
	case "sqs", "sns":
		server = f.running.queues
	}
	f.running.mu.Unlock()
	if server == nil {
		return nil
	}
	u, _ := url.Parse(server.Endpoint()) // of a server that was started here
	return u
}

// keyOf is the access key of a function: DynamoDB Local takes letters and digits.
func (f *front) keyOf(function string) string {
	sum := sha256.Sum256([]byte(function))
	key := "LOCAL" + strings.ToUpper(hex.EncodeToString(sum[:8]))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.functions[key] = function
	return key
}

// callOf is the call that a request is.
func (f *front) callOf(r *http.Request, body []byte) Call {
	signed := signatureOf(r)
	f.mu.Lock()
	defer f.mu.Unlock()
	c := Call{Function: f.functions[signed.key], Trace: r.Header.Get("X-Amzn-Trace-Id"), Service: signed.service,
		Header: r.Header, Body: body}
	if _, operation, ok := strings.Cut(r.Header.Get("X-Amz-Target"), "."); ok {
		c.Operation = operation
	} else if c.invokes = invokes(r, c.Service); c.invokes != "" {
		c.Operation = "Invoke"
	} else if form, err := url.ParseQuery(string(body)); err == nil {
		c.Operation = form.Get("Action")
	}
	return c
}

// invokes is the function that a request to Lambda invokes, with its version if it has one; empty if it is another
// request.
func invokes(r *http.Request, service string) string {
	name, isFunction := strings.CutPrefix(r.URL.Path, "/2015-03-31/functions/")
	name, isInvoke := strings.CutSuffix(name, "/invocations")
	if service != "lambda" || r.Method != http.MethodPost || !isFunction || !isInvoke {
		return ""
	}
	if _, rest, isARN := strings.Cut(name, ":function:"); isARN {
		name = rest
	}
	if version := r.URL.Query().Get("Qualifier"); version != "" && !strings.Contains(name, ":") {
		name += ":" + version
	}
	return name
}

// ServeHTTP passes a call on.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the function was killed
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	c := f.callOf(r, body)
	if called := f.running.options.Called; called != nil {
		called(c)
	}
	if c.Service == "sts" && c.Operation == "GetCallerIdentity" {
		whoCalls(w, c)
		return
	}
	if c.invokes == "" && f.server(c.Service) == nil {
		f.running.notHere(w, r, c)
		return
	}
	if f.running.refused(w, c) {
		return
	}
	if c.invokes != "" {
		name := functionName(c.invokes)
		if r.Header.Get("X-Amz-Invocation-Type") == "DryRun" && f.running.function(name) != nil {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		f.running.invoke(w, r, name, body)
		return
	}
	i := f.count(c)
	if i == nil {
		f.proxy.ServeHTTP(w, r)
		return
	}
	if i.After {
		f.proxy.ServeHTTP(lost{}, r)
	}
	f.running.interrupt(*i, c.Trace)
	panic(http.ErrAbortHandler) // the function gets no answer
}

// whoCalls says who makes a call, as STS does for all callers. It is the actor of what idemctl changes.
func whoCalls(w http.ResponseWriter, c Call) {
	name := cmp.Or(c.Function, AccessKey)
	w.Header().Set("Content-Type", "text/xml")
	fmt.Fprintf(w, `<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">`+
		`<GetCallerIdentityResult><Arn>arn:aws:iam::%s:user/%s</Arn><UserId>%[2]s</UserId><Account>%[1]s</Account>`+
		`</GetCallerIdentityResult></GetCallerIdentityResponse>`, account, name)
}

// lost is an answer that does not arrive.
type lost http.Header

func (l lost) Header() http.Header       { return http.Header(l) }
func (lost) Write(p []byte) (int, error) { return len(p), nil }
func (lost) WriteHeader(int)             {}

// count adds a call to its invocation, and returns what interrupts it there.
func (f *front) count(c Call) *Interruption {
	f.mu.Lock()
	defer f.mu.Unlock()
	inv := f.invocations[c.Trace]
	if inv == nil || c.Service != "dynamodb" {
		return nil
	}
	inv.Calls++
	if f.running.options.Invoked != nil {
		inv.note(c.Body)
	}
	if slices.Contains(inv.made, string(c.Body)) { // a retry of the same call
		return nil
	}
	inv.made = append(inv.made, string(c.Body))
	i, ok := f.interruptions[inv.Function]
	if !ok || i.Call > 0 && len(inv.made) != i.Call || i.Call == 0 && !recordsEnd(c.Body) {
		return nil
	}
	delete(f.interruptions, inv.Function)
	i.pool = inv.pool
	return &i
}

// Interruption is what becomes of a function's process while it calls DynamoDB.
type Interruption struct {
	Function string
	// Call says at which call to DynamoDB of an invocation, from 1. A retry of the same call does not count. 0 means the
	// call that records how the attempt ended.
	Call int
	// After says that the call is made, and its answer lost. Otherwise it is not made.
	After bool
	// Freeze stops the process until its time-out, instead of killing it.
	Freeze bool

	pool *runtime.Pool // that has the process
}

func (i Interruption) String() string {
	how, when := "killed", "before"
	if i.Freeze {
		how = "frozen until its time-out"
	}
	if i.After {
		when = "after"
	}
	if i.Call == 0 {
		return how + " " + when + " the call to DynamoDB that records how the attempt ended"
	}
	return fmt.Sprintf("%s %s call %d to DynamoDB", how, when, i.Call)
}

// Interrupt has the next invocation of a function that makes so many calls interrupted, and returns the function's
// name. A part of the name is enough if no other function has it.
func (r *Running) Interrupt(i Interruption) (name string, err error) {
	if i.Function, err = OneOf(r.Names(), i.Function); err != nil {
		return "", err
	}
	if i.Call < 0 {
		return "", fmt.Errorf("call %d: the first one is 1", i.Call)
	}
	r.front.mu.Lock()
	defer r.front.mu.Unlock()
	r.front.interruptions[i.Function] = i
	return i.Function, nil
}

func (r *Running) interrupt(i Interruption, trace string) {
	for _, inv := range i.pool.InFlight() {
		if inv.Trace != trace {
			continue
		}
		do := i.pool.Kill
		if i.Freeze {
			do = i.pool.Freeze
		}
		if err := do(inv.PID); err == nil {
			r.report("%s[%d] was %s", i.Function, inv.PID, i)
		}
	}
}

// recordsEnd reports whether a call to DynamoDB records how an attempt ended, with an outcome or without one. A claim
// that is taken back does not count, nor does a record that another call parks: those writes have other conditions.
func recordsEnd(body []byte) bool {
	has := func(text string) bool { return bytes.Contains(body, []byte(text)) }
	to := func(s idem.State) bool { return has(`{"S":"` + string(s) + `"}`) }
	ends := func(s idem.State) bool { return has(`"owner_id=:own `) && has(`":to":{"S":"`+string(s)+`"}`) }
	return len(recordsIn(body)) > 0 &&
		(to(idem.Completed) || to(idem.Failed) || ends(idem.Released) || ends(idem.Unknown))
}

// recordsIn lists the ids of the records that a call to DynamoDB names.
func recordsIn(body []byte) (ids []string) {
	var request any
	if json.Unmarshal(body, &request) != nil {
		return nil
	}
	text := func(item map[string]any, name string) string {
		value, _ := item[name].(map[string]any)
		s, _ := value["S"].(string)
		return s
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			id := text(v, schema.PK)
			if id != "" && text(v, schema.SK) == schema.RecordSK && !strings.Contains(id, schema.PartPK) {
				ids = append(ids, id)
			}
			for _, member := range v {
				walk(member)
			}
		case []any:
			for _, member := range v {
				walk(member)
			}
		}
	}
	walk(request)
	return ids
}
