package main

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/idem-go/idempotency/idem/console"
	"github.com/idem-go/idempotency/idem/reconcile"
)

type consoleCmd struct {
	Listen string `default:"127.0.0.1:0" placeholder:"ADDRESS" help:"Loopback address to serve on; port 0 is a free one."`
	Who    string `placeholder:"NAME" help:"Who makes the changes; else the AWS caller, and with --store or a DynamoDB Local this machine's user."`
}

// served is what the command writes as JSON.
type served struct {
	Address string `json:"address"`
}

// Run serves until Ctrl-C ends it, which is no failure.
func (c *consoleCmd) Run(ctx context.Context, s *session) error {
	who, err := s.who(ctx, c.Who)
	if err != nil {
		return err
	}
	at, err := net.ResolveTCPAddr("tcp", c.Listen)
	if err != nil {
		return misuse("--listen: %v", err)
	}
	if !at.IP.IsLoopback() {
		return misuse("--listen: other machines would reach %s, without encryption: use 127.0.0.1, and from elsewhere a "+
			"tunnel such as ssh -L 8080:127.0.0.1:8080", at)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", at.String())
	if err != nil {
		return misuse("--listen: %v", err)
	}
	key := rand.Text()
	log := slog.New(slog.NewTextHandler(s.err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	h, err := consoleOf(s.records, who, key, log, s.now)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	address := fmt.Sprintf("http://%s/?key=%s", l.Addr(), key)
	if err := s.print(served{address}, func() { fmt.Fprintln(s.out, address) }); err != nil {
		return errors.Join(err, l.Close())
	}
	say(s.err, "Open this address in a browser. All who have it change records as %s. Ctrl-C ends the console.", line(who))
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	// A change that is under way is finished.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTime)
	defer cancel()
	if err := srv.Shutdown(last); err != nil {
		return errors.Join(err, srv.Close())
	}
	return nil
}

// consoleOf is the console for those who have the key. A port of the own machine is open to all who
// work on it.
func consoleOf(r *reconcile.Reconciler, who, key string, log *slog.Logger,
	now func() time.Time) (http.Handler, error) {
	cookie := "idemctl-" + key[:6] // browsers send cookies to every port
	same := func(given string) bool { return subtle.ConstantTimeCompare([]byte(given), []byte(key)) == 1 }
	pages, err := console.New(r, &console.Options{Log: log, Now: now,
		Who: func(req *http.Request) (string, error) {
			for _, c := range req.CookiesNamed(cookie) {
				if same(c.Value) {
					return who, nil
				}
			}
			return "", errors.New("the request does not come from the address that idemctl console has printed")
		},
	})
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodGet && req.URL.Path == "/" && same(req.URL.Query().Get("key")) {
			http.SetCookie(w, &http.Cookie{Name: cookie, Value: key, Path: "/", HttpOnly: true,
				SameSite: http.SameSiteStrictMode})
			w.Header().Set("Cache-Control", "no-store")
			w.Header().Set("Referrer-Policy", "no-referrer")
			http.Redirect(w, req, "/", http.StatusSeeOther) // the key is not left in the history
			return
		}
		pages.ServeHTTP(w, req)
	}), nil
}
