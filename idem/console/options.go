package console

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

const (
	// DefaultPoll is how often an open page asks the store for news.
	DefaultPoll = 2 * time.Second
	// leastKey is the least length of Options.FormKey in bytes.
	leastKey = 32
)

// Options of a console. Who is required. Zero values of the others mean the defaults.
type Options struct {
	// Prefix is the path under which the console is mounted, such as "/idem". Requests must
	// come with it. Empty means the root.
	Prefix string
	// Who tells who makes a request, such as a person's address: it is written with each
	// change. An error, or an empty name, refuses the request with status 403; the error is
	// only logged. Required; [ThisMachine] if only who works on this machine can reach it.
	Who func(*http.Request) (string, error)
	// Hosts are the names, without port, under which a proxy or a tunnel on this machine
	// passes requests on. A request that comes over a loopback address must name one of
	// them, or a loopback name; otherwise a page of another site could reach the console
	// through a name of its own that leads here (DNS rebinding). Requests over other
	// addresses may have any name if Hosts is empty.
	Hosts []string
	// FormKey signs forms. Processes that answer each other's forms must have the same one,
	// of at least 32 random bytes. Nil means a random one.
	FormKey []byte
	// Encode encodes the response that an operator has typed for the record of an HTTP request,
	// such as by the service's own [idemhttp.Contract.Encode]. Nil means [idemhttp.Encode].
	Encode func(*idem.Record, *idemhttp.Response) (protocol.Encoded, error)
	// Poll is how often an open page asks the store for news. A page that shows many records
	// asks less often: it reads 50 records a second at most, and all open pages together 200.
	// Zero means [DefaultPoll].
	Poll time.Duration
	// Now is the clock, for tests. Nil means time.Now.
	Now func() time.Time
	// Log gets a line for each change, for each request that is refused, and for each failure
	// of the store. Nil means slog.Default.
	Log *slog.Logger
}

// New returns the console of the reconciler's store. It makes no call. Mistakes are an
// [*idem.ConfigError]. The handler is safe for concurrent use. A page that follows the
// table holds its request open: a server that shuts down must end the requests' contexts
// first, for example by its BaseContext.
func New(r *reconcile.Reconciler, o *Options) (http.Handler, error) {
	invalid := func(what, format string, args ...any) (http.Handler, error) {
		return nil, &idem.ConfigError{What: "console: " + what, Problem: fmt.Sprintf(format, args...)}
	}
	switch {
	case r == nil:
		return invalid("reconciler", "is nil: make one with reconcile.New")
	case o == nil || o.Who == nil:
		return invalid("Options.Who", "is nil: tell who makes a request, by your own sign-in, or use console.ThisMachine "+
			"if no proxy passes on to it what comes from elsewhere")
	case !isPrefix(o.Prefix):
		return invalid("Options.Prefix", "is %q: use a clean path such as \"/idem\", of letters, digits and - . _ ~ /",
			o.Prefix)
	case o.FormKey != nil && len(o.FormKey) < leastKey:
		return invalid("Options.FormKey", "has %d bytes: use at least %d random ones", len(o.FormKey), leastKey)
	case o.Poll < 0:
		return invalid("Options.Poll", "is %v: it cannot be negative", o.Poll)
	}
	for _, h := range o.Hosts {
		if h == "" || strings.ContainsAny(h, "/ ") || hostOf(h) != strings.ToLower(h) {
			return invalid("Options.Hosts", "has %q: use names without scheme and port", h)
		}
	}
	c := &console{r: r, opts: *o, streams: make(chan struct{}, maxStreams), looks: make(chan struct{}, maxLooks)}
	if c.opts.FormKey == nil {
		c.opts.FormKey = []byte(rand.Text() + rand.Text())
	}
	c.opts.Poll = cmp.Or(o.Poll, DefaultPoll)
	c.opts.Log = cmp.Or(o.Log, slog.Default())
	if o.Now == nil {
		c.opts.Now = time.Now
	}
	if o.Encode == nil {
		c.opts.Encode = func(_ *idem.Record, res *idemhttp.Response) (protocol.Encoded, error) { return idemhttp.Encode(res) }
	}
	return c.guarded(c.routes()), nil
}

var plainPath = regexp.MustCompile(`^(/[a-zA-Z0-9._~-]+)*$`)

func isPrefix(p string) bool { return plainPath.MatchString(p) && (p == "" || path.Clean(p) == p) }

// hostOf is the name of a Host header, in lower case and without port and brackets.
func hostOf(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
}
