package console

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// policy lets a page load its style, its script and its icon from the console itself, and
// nothing else. No page may frame it.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

type whoKey struct{}

// who makes the request.
func who(r *http.Request) string {
	name, _ := r.Context().Value(whoKey{}).(string)
	return name
}

// guarded lets only requests through that may be answered.
func (c *console) guarded(next http.Handler) http.Handler {
	foreign := http.NewCrossOriginProtection()
	foreign.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.refuse(w, r, errors.New("the request comes from a page of another origin"), problem{
			Status: http.StatusForbidden, Title: "Refused",
			Text: "The request comes from a page of another origin. Nothing was changed.",
		})
	}))
	next = foreign.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Frame-Options", "DENY")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if !c.named(r) {
			c.refuse(w, r, errors.New("the Host header is neither a loopback name nor one of Options.Hosts"), problem{
				Status: http.StatusMisdirectedRequest, Title: "Wrong host",
				Text: "This console is reached over a loopback address, and not under this name. Open it as 127.0.0.1 " +
					"or localhost, or name the host in its options.",
			})
			return
		}
		name, err := c.opts.Who(r)
		if err == nil && name == "" {
			err = errors.New("Options.Who returned no name")
		}
		if err != nil {
			c.refuse(w, r, err, problem{Status: http.StatusForbidden, Title: "Refused",
				Text: "The console does not know who you are."})
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), whoKey{}, name)))
	})
}

func (c *console) refuse(w http.ResponseWriter, r *http.Request, why error, p problem) {
	c.opts.Log.WarnContext(r.Context(), "idem console: request refused", "reason", why, "method", r.Method, "path",
		r.URL.Path, "host", r.Host, "from", r.RemoteAddr)
	c.fail(w, r, p)
}

// named reports whether the request has a name under which the console may be reached.
func (c *console) named(r *http.Request) bool {
	host := hostOf(r.Host)
	if slices.ContainsFunc(c.opts.Hosts, func(h string) bool { return hostOf(h) == host }) {
		return true
	}
	if !local(r) {
		return len(c.opts.Hosts) == 0
	}
	return isHere(host)
}

// local reports whether the request came over a loopback address.
func local(r *http.Request) bool {
	if addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && isLoopback(hostOf(addr.String())) {
		return true
	}
	return isLoopback(hostOf(r.RemoteAddr))
}

// isHere reports whether the name is one of this machine for itself.
func isHere(host string) bool { return host == "localhost" || isLoopback(host) }

func isLoopback(host string) bool { return net.ParseIP(host).IsLoopback() }

// ThisMachine is an [Options.Who] for a console on a machine of your own, on which name works. It admits
// requests from the machine itself, and calls each of them name. A request that shows that a proxy
// has passed it on is refused: by the proxy's headers, HTTP/1.0, or a page of another host.
// Many proxies show nothing, such as nginx since 1.29.7 as it is by default. Behind one,
// everybody whom it serves may read all records and change them under that name.
func ThisMachine(name string) func(*http.Request) (string, error) {
	return func(r *http.Request) (string, error) {
		switch {
		case !isLoopback(hostOf(r.RemoteAddr)):
			return "", errors.New("the request comes from another machine, and Options.Who is ThisMachine")
		case proxied(r):
			return "", errors.New("a proxy has passed the request on, and Options.Who is ThisMachine")
		}
		return name, nil
	}
}

// proxied reports whether the request shows that a proxy has passed it on. One that adds no
// header and sends a Host of its own, as nginx does by default, is given away by its HTTP/1.0
// (nginx before 1.29.7, https://nginx.org/en/CHANGES), or by the page that the browser names, if
// it does not say that this is a page of others. A typed address over HTTP/1.1 shows nothing.
func proxied(r *http.Request) bool {
	for name := range r.Header {
		if name == "Forwarded" || name == "Via" || name == "X-Real-Ip" || strings.HasPrefix(name, "X-Forwarded-") {
			return true
		}
	}
	site := r.Header.Get("Sec-Fetch-Site")
	ofOthers := site == "cross-site" || site == "same-site"
	for _, name := range []string{"Origin", "Referer"} {
		if page := r.Header.Get(name); page != "" && !ofOthers {
			from, err := url.Parse(page)
			if err != nil || !isHere(hostOf(from.Host)) {
				return true
			}
		}
	}
	return !r.ProtoAtLeast(1, 1)
}
