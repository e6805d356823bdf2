package console

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
)

// policy lets a page load its style, its script and its icon from the console itself, and
// nothing else. No page of anybody may frame it.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// defaultWho makes the requests from this machine if there is no Options.Who.
const defaultWho = "console"

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
			Status: http.StatusForbidden, Title: "Refused", Text: "The request comes from a page of another origin. Nothing was changed.",
		})
	}))
	next = foreign.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Frame-Options", "DENY")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if !c.named(r) {
			c.refuse(w, r, errors.New("the Host header is neither a loopback name nor one of Options.Hosts"), problem{
				Status: http.StatusMisdirectedRequest, Title: "Wrong host",
				Text: "This console is reached over a loopback address, and not under this name. Open it as 127.0.0.1 or localhost, or name the host in its options.",
			})
			return
		}
		name, err := c.opts.Who(r)
		if err == nil && name == "" {
			err = errors.New("Options.Who returned no name")
		}
		if err != nil {
			c.refuse(w, r, err, problem{Status: http.StatusForbidden, Title: "Refused", Text: "The console does not know who you are."})
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), whoKey{}, name)))
	})
}

func (c *console) refuse(w http.ResponseWriter, r *http.Request, why error, p problem) {
	c.opts.Log.WarnContext(r.Context(), "idem console: request refused", "reason", why, "method", r.Method, "path", r.URL.Path, "host", r.Host, "from", r.RemoteAddr)
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
	return host == "localhost" || isLoopback(host)
}

// local reports whether the request came over a loopback address.
func local(r *http.Request) bool {
	if addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && isLoopback(hostOf(addr.String())) {
		return true
	}
	return isLoopback(hostOf(r.RemoteAddr))
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// fromHere admits who is on this machine. What a proxy passes on may come from anywhere.
func fromHere(r *http.Request) (string, error) {
	if !isLoopback(hostOf(r.RemoteAddr)) {
		return "", errors.New("the request comes from another machine, and there is no Options.Who")
	}
	for _, h := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "Via"} {
		if r.Header.Get(h) != "" {
			return "", errors.New("a proxy has passed the request on, and there is no Options.Who")
		}
	}
	return defaultWho, nil
}
