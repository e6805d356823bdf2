package idemhttp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/idem/internal/codec"
	"github.com/idem-go/idempotency/idem/internal/pathtemplate"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/protocol"
)

// AcceptsLater is [LaterRoutes]. It is an interface so that programs without them do not carry
// what serves them.
type AcceptsLater interface {
	of(*Contract) (accepted, error)
}

// accepted is the part of a contract that serves what is accepted for later.
type accepted interface {
	// accept serves a request whose route is accepted for later. For another one it returns nil.
	accept(ctx context.Context, r *Request, d *declared, call idem.Call) (*Response, error)
	// asks returns the template of the path if status serves the request, else "".
	asks(r *Request) (template string)
	status(ctx context.Context, r *Request) (*Response, error)
}

// LaterRoutes are the routes, as in [Routes], whose operations are accepted for later, for
// [Options.Later].
type LaterRoutes map[string]Later

// Later declares that the operation of a route is accepted for later: its handler is never
// called. The request's JSON body, or what [Later.Input] makes of it, is recorded as the input of
// the worker, such as [later.Work] or idemlambda.SQSWorker. The answer is 202 with a Location to
// follow it, Retry-After and [LaterState] as its body. The same request again gets the same, or
// the outcome once there is one, and another body under its key is refused as always.
//
// The contract also serves the Location, in every method that asks for it: GET and HEAD answer
// alike, and DELETE cancels the work, with 204, as long as no worker has claimed it. These need no
// key. The outcome is the worker's result as JSON with status 200, or a problem. Other tenants
// get the same 404 as for an id that never was; within the tenant the id is enough, also
// with [Options.Principal]. [Options.Refresh], Migrate and Redact are about responses of handlers,
// and do not see these. [Options.OnRefusal] adds its headers here too, under [CodeAccepted].
type Later struct {
	// Status is the template of the path at which a client follows the request, such as
	// "/statements/{id}". Its last segment is the parameter for the id; parameters before that
	// must be those with which the route's own template begins. Route GET, HEAD and DELETE of it
	// to the contract: all paths that match it are the contract's, unless the gateway has matched
	// another template. Required, and a route's own.
	Status string

	// Enqueue adds the message that brings the worker to the unit of work, with the id of the record as its body,
	// such as with dynamostore.TxOf or pgstore.Transact. See [later.Accept]. An error accepts nothing: one that matches
	// [idem.ErrStoreUnavailable] or [idem.ErrOutOfTime] is answered with 503, any other is returned by
	// [Contract.Serve]. Nil is for workers that the table's stream brings.
	Enqueue later.EnqueueFunc

	// Input makes the worker's input of a request, in JSON, such as its body without what must not
	// be recorded, or with the principal. Requests are compared by their whole body all the same. An
	// error accepts nothing: one that matches [*fingerprint.NotCanonicalError] is answered with 400 and
	// its reason, any other is returned by [Contract.Serve]. [InputOf] refuses bodies that the worker
	// could not decode, which would be escalated to operators. Nil takes the body as it is.
	Input func(ctx context.Context, r *Request) ([]byte, error)

	// StartWithin is how long the work may wait for its worker before a sweep ends it; zero means
	// [later.DefaultStartWithin].
	StartWithin time.Duration

	// ResultLocation returns where the resource is that the work has made, from its result: the
	// outcome is then 303 with this Location, an absolute path or a URL with http or https. If it
	// returns something else, or is nil, the outcome is 200 with the result.
	ResultLocation func(result []byte) string

	// Failed makes the answer for a worker's recorded failure, such as a problem of the service's
	// own. If it returns nil, or is nil, the answer is 500 operation_failed, without
	// details. It is not called for work that no worker has begun. The answer's Cache-Control is
	// no-store.
	Failed func(f idem.Failure) *Response
}

// LaterState is the body of a 202 for a request that was accepted for later.
type LaterState struct {
	// State is "pending" until a worker has begun, then "in_progress".
	State idem.State `json:"state"`
	// ID is the last segment of the status's path.
	ID string `json:"id"`
}

// InputOf is a [Later.Input] that takes the body as it is and refuses one that does not decode
// into In, the type that the worker's handler takes.
func InputOf[In any](_ context.Context, r *Request) ([]byte, error) {
	if err := codec.Decode("the body", r.Body, new(In)); err != nil {
		return nil, &fingerprint.NotCanonicalError{Reason: "the body does not have the form that this route takes",
			Offset: -1}
	}
	return r.Body, nil
}

// laters are the accepted routes of a contract.
type laters struct {
	*Contract
	byRoute  map[*declared]*laterRoute
	byStatus map[string]*laterRoute // the same by their status's template
}

type laterRoute struct {
	Later
	*declared
	// up leads from the route's path to that of its status, without the id. The reference is
	// relative, since only the client knows what stands before the path.
	up string
}

func (routes LaterRoutes) of(c *Contract) (accepted, error) {
	all := &laters{c, map[*declared]*laterRoute{}, map[string]*laterRoute{}}
	for _, name := range slices.Sorted(maps.Keys(routes)) {
		d, err := c.named("Later", name)
		if err != nil {
			return nil, err
		}
		l := &laterRoute{Later: routes[name], declared: d}
		if d.op.Shadow {
			return nil,
				mistake("Later has the route %q, whose operation is in shadow: that records nothing that a worker could run", name)
		}
		if err := c.engine.Check(d.op, true); err != nil {
			return nil, err
		}
		if l.StartWithin < 0 || l.StartWithin != 0 && l.StartWithin < time.Second {
			return nil, mistake("Later of route %q: StartWithin is %v: use at least one second, or zero for %v",
				name, l.StartWithin, later.DefaultStartWithin)
		}
		_, location, _ := strings.Cut(name, " ")
		var ok bool
		if l.up, ok = wayTo(location, l.Status); !ok {
			return nil, mistake("Later of route %q: Status is %q: use a template like \"/statements/{id}\", whose "+
				"last segment is a parameter, "+
				"and whose others are literal or begin the route's own template", name, l.Status)
		}
		if all.byStatus[l.Status] != nil {
			return nil, mistake("Later of route %q: another route has the Status %q: use one for each", name, l.Status)
		}
		for _, m := range statusMethods {
			if c.routes[route{m, l.Status}] != nil {
				return nil, mistake("the routes declare an operation for %q, which is the status of %q", m+" "+l.Status, name)
			}
		}
		all.byRoute[d], all.byStatus[l.Status] = l, l
	}
	return all, nil
}

// wayTo is the relative reference (RFC 3986 4.2) from paths of one template to those of the other,
// without the last segment.
func wayTo(from, to string) (up string, ok bool) {
	there, here := strings.Split(to, "/"), strings.Split(from, "/")
	if len(there) < 2 || there[0] != "" || !pathtemplate.Valid(to) || !isParameter(there[len(there)-1]) ||
		strings.ContainsAny(to, " ?#") {
		return "", false
	}
	if end := here[len(here)-1]; isRest(end) || end == "" && from != "/" {
		return "", false // paths of any length
	}
	here, there = here[:len(here)-1], there[:len(there)-1]
	same := 0
	for same < len(here) && same < len(there) && here[same] == there[same] {
		same++
	}
	for _, s := range there[same:] {
		if strings.HasPrefix(s, "{") || s == "" {
			return "", false
		}
	}
	up = strings.Repeat("../", len(here)-same) + strings.Join(append(there[same:len(there):len(there)], ""), "/")
	if first, _, _ := strings.Cut(up, "/"); first == "" || strings.Contains(first, ":") {
		up = "./" + up
	}
	return up, true
}

func isRest(segment string) bool {
	return strings.HasSuffix(segment, "+}") || strings.HasSuffix(segment, "...}")
}

func isParameter(segment string) bool {
	return strings.HasPrefix(segment, "{") && segment != "{$}" && !isRest(segment)
}

func (c *laters) accept(ctx context.Context, r *Request, d *declared, call idem.Call) (*Response, error) {
	l := c.byRoute[d]
	switch {
	case l == nil:
		return nil, nil
	case !r.isJSON(), !json.Valid(r.Body):
		return c.refusal(ctx, r, &situation{code: CodeNotCanonical,
			why: "this route takes a body in JSON that is declared as application/json"}), nil
	}
	input := r.Body
	if l.Input != nil {
		var err error
		input, err = l.Input(ctx, r)
		if bad, ok := errors.AsType[*fingerprint.NotCanonicalError](err); ok {
			return c.refusal(ctx, r, &situation{code: CodeNotCanonical, why: bad.Reason}), nil
		}
		if err != nil {
			return nil, err
		}
		if !json.Valid(input) {
			return nil, mistake("Later.Input of %s %s made no JSON of the request: encode what the worker decodes", r.Method,
				cmp.Or(r.Route, r.Path))
		}
	}
	call.Codec = ""
	call = later.Call(call, protocol.Later{Input: input, StartWithin: l.StartWithin}, l.Enqueue)
	enqueue, failed := call.Run, false
	call.Run = func(ctx context.Context) idem.Answer {
		ans := enqueue(ctx)
		failed = ans.Err != nil
		return ans
	}
	out, err := c.engine.Execute(ctx, call)
	if failed { // an error of Enqueue is no outcome, whatever else it matches: nothing is recorded
		for _, passing := range []error{idem.ErrOutOfTime, idem.ErrStoreUnavailable} {
			if errors.Is(err, passing) {
				return c.refusal(ctx, r, refuse(passing)), nil
			}
		}
		return nil, err
	}
	if large, ok := errors.AsType[*protocol.TooLargeError](err); ok {
		return c.refusal(ctx, r, &situation{code: CodeRequestTooLarge, why: "at most " + strconv.Itoa(large.Limit) +
			" bytes can be kept for later"}), nil
	}
	_, recorded := errors.AsType[*idem.RecordedError](err)
	res, err := c.progress(ctx, r, l, &out, err)
	switch {
	case err != nil:
		return nil, err
	case res.Status == http.StatusAccepted && out.StatusID != "":
		res.Headers["Location"] = l.up + out.StatusID
	case recorded, out.RecordState == idem.Completed && res.Status < 400:
		c.addReplayHeaders(res, &out)
	}
	return res, nil
}

// progress answers a request that is sent again, or a request for the status of accepted work.
func (c *laters) progress(
	ctx context.Context, r *Request, l *laterRoute, out *idem.Outcome, err error,
) (*Response, error) {
	if failed, ok := errors.AsType[*idem.RecordedError](err); ok {
		return c.recorded(ctx, r, c.failed(ctx, r, l, failed.Failure), out), nil
	}
	if err != nil {
		no := cmp.Or(refuseStatus(err), refuse(err))
		if no == nil {
			return nil, err
		}
		return c.refusal(ctx, r, no), nil
	}
	switch out.RecordState {
	case idem.Unknown:
		return c.refusal(ctx, r, &situation{code: CodeOutcomeUnknown}), nil
	case idem.Completed:
		if _, err := decode(out.Body); err == nil {
			// It was executed when the route was not accepted for later yet.
			res, err := c.replay(ctx, r, out)
			if err != nil {
				return c.refusal(ctx, r, refuse(err)), nil
			}
			return res, nil
		}
		return c.recorded(ctx, r, c.done(ctx, r, l, out), out), nil
	}
	state := LaterState{State: idem.InProgress, ID: out.StatusID}
	if out.RecordState == idem.Pending {
		state.State = idem.Pending
	}
	body, _ := json.Marshal(state) // two strings can always be encoded
	res := c.plain(ctx, r, http.StatusAccepted, body)
	// Four requests in the time that the client has waited so far are often enough.
	waited := c.engine.Now().Sub(out.CreatedAt)
	after := min(max(waited/4, minRetryAfter), maxPoll)
	res.Headers["Retry-After"] = strconv.Itoa(int((after + time.Second - 1) / time.Second))
	return res, nil
}

// recorded marks the answer with an outcome as such, unless the gateway cannot return it.
func (c *laters) recorded(ctx context.Context, r *Request, res *Response, out *idem.Outcome) *Response {
	if r.Fits != nil && !r.Fits(res) {
		return c.refusal(ctx, r, &situation{code: CodeOutcomeUnavailable})
	}
	if !out.RecordedAt.IsZero() {
		res.addDates(out)
	}
	return res
}

// maxPoll is the longest time between two looks that clients are asked for.
const maxPoll = 30 * time.Second

// done is the outcome of work that has completed.
func (c *laters) done(ctx context.Context, r *Request, l *laterRoute, out *idem.Outcome) *Response {
	at := ""
	if l.ResultLocation != nil && !safely(func() bool { at = l.ResultLocation(slices.Clone(out.Body)); return true }) {
		at = ""
	}
	if at != "" && isLinkTarget(at) {
		res := c.plain(ctx, r, http.StatusSeeOther, nil)
		res.Headers["Location"] = at
		return res
	}
	return c.plain(ctx, r, http.StatusOK, out.Body)
}

// isLinkTarget reports whether a text is an absolute path, or a URL with http or https, that can be in
// a header. Scripts may follow others, such as javascript: and //host, to where the service did not
// mean them to go.
func isLinkTarget(at string) bool {
	u, err := url.Parse(at)
	return err == nil && linkTarget.MatchString(at) && (u.Scheme == "" || u.Hostname() != "")
}

var linkTarget = regexp.MustCompile(`^((?i:https?):/)?/([!-.0-;=?-\[\]-~][!-;=?-~]*)?$`)

// failed is the outcome of work that has failed, or was never begun.
func (c *laters) failed(ctx context.Context, r *Request, l *laterRoute, f idem.Failure) *Response {
	code := codeOf(f)
	var own *Response
	if code == CodeFailed && l.Failed != nil &&
		safely(func() bool { own = l.Failed(f); return own != nil && own.final() }) {
		return c.own(ctx, r, own.clone())
	}
	return c.refusal(ctx, r, &situation{code: code})
}

// own is an answer that the service has made. It has the headers of all other answers about accepted
// work, and none that the contract alone may set.
func (c *laters) own(ctx context.Context, r *Request, res *Response) *Response {
	res.dropHeaders(func(name string) bool { return !replayHeaders.has(name) })
	res.replaceHeader("Cache-Control", "no-store")
	res.addHeaders(c.onRefusal(ctx, r, Problem{Code: CodeAccepted, Status: res.Status}).Headers)
	return res
}

// plain is an answer about accepted work that is no refusal. It has the headers of refusals, such
// as for scripts in browsers.
func (c *laters) plain(ctx context.Context, r *Request, status int, body []byte) *Response {
	res := &Response{Status: status, Headers: map[string]string{"Cache-Control": "no-store"}, Body: body}
	if len(body) > 0 {
		res.Headers["Content-Type"] = "application/json"
	}
	res.addHeaders(c.onRefusal(ctx, r, Problem{Code: CodeAccepted, Status: status}).Headers)
	return res
}
