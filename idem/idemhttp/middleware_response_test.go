package idemhttp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/stretchr/testify/require"
)

// What a handler writes over a real connection, live and on replay.
func TestWhatOfAResponseGoesOut(t *testing.T) {
	bodiless := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Etag", `"1"`)
			w.WriteHeader(status)
			_, err := w.Write([]byte("x"))
			require.ErrorIs(t, err, http.ErrBodyNotAllowed)
		}
	}
	for name, c := range map[string]struct {
		h      http.HandlerFunc
		status int
		length int64
		text   string
		header map[string]string // what is empty is not there
	}{
		// They go out at once, with the headers of that moment, and are not a part of what is recorded.
		"informational responses": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", "</style.css>")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Del("Link")
			w.Header().Set("X-Own", "1")
			w.WriteHeader(http.StatusAccepted)
		}, 202, 0, "", map[string]string{"X-Own": "1", "Link": ""}},
		"trailers": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			w.Header().Set(http.TrailerPrefix+"X-Early", "1")
			_, _ = io.WriteString(w, "made")
			w.Header().Set("X-Sum", "1")
			w.Header().Set(http.TrailerPrefix+"X-Late", "1")
		}, 200, 4, "made", map[string]string{"Trailer": "", "X-Sum": ""}},
		"no content":   {bodiless(204), 204, 0, "", map[string]string{"Etag": `"1"`}},
		"not modified": {bodiless(304), 304, 0, "", map[string]string{"Etag": `"1"`}},
		// Where it needs a key, its response tells the length of a body that is not sent.
		"HEAD": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte("x"))
		}, 200, 1000, "", nil},
		// The length is that of the body, whatever the handler announced, and the type is what net/http finds.
		"framing": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			w.Header()["Date"] = nil
			_, _ = io.WriteString(w, "<html><p>made")
		}, 200, 13, "<html><p>made", map[string]string{"Content-Type": "text/html; charset=utf-8"}},
	} {
		t.Run(name, func(t *testing.T) {
			method := "POST"
			if name == "HEAD" {
				method = name
			}
			contract, err := New(newEngine(t, memory()), Routes{method + " /payments": charge}, tenantInHeader,
				&Options{Methods: []string{method}})
			require.NoError(t, err)
			server := httptest.NewServer(contract.Middleware(c.h, nil))
			defer server.Close()
			var informed []string
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				Got1xxResponse: func(status int, h textproto.MIMEHeader) error {
					informed = append(informed, strconv.Itoa(status)+" "+h.Get("Link"))
					return nil
				},
			})
			for i := range 2 {
				r, err := http.NewRequestWithContext(ctx, method, server.URL+"/payments", strings.NewReader("{}"))
				require.NoError(t, err)
				r.Header = netRequest("POST", "/payments", "").Header
				res, err := server.Client().Transport.RoundTrip(r)
				require.NoError(t, err)
				body, err := io.ReadAll(res.Body)
				require.NoError(t, err)
				require.NoError(t, res.Body.Close())
				require.Equal(t, c.status, res.StatusCode)
				require.Equal(t, c.length, res.ContentLength)
				require.Equal(t, c.text, string(body))
				for name, value := range c.header {
					require.Equal(t, value, res.Header.Get(name), name)
				}
				require.Empty(t, res.Trailer)
				require.Equal(t, i == 1, res.Header.Get(HeaderReplayed) == "true")
				require.Equal(t, name == "framing" && i == 0, res.Header.Get("Date") == "",
					"a header that is switched off stays off, and a replay has the date of its own exchange")
			}
			if name == "informational responses" {
				require.Equal(t, []string{"103 </style.css>"}, informed)
			}
		})
	}
}

// Nothing reaches the client before the record is written, and nothing can go around the recorder.
func TestResponseIsBuffered(t *testing.T) {
	w := httptest.NewRecorder()
	h := mounted(netContract(t, memory()), nil, func(got http.ResponseWriter, _ *http.Request) {
		got.Header().Set("X-Own", "1")
		got.(http.Flusher).Flush()
		got.Header().Set("X-Late", "1")
		_, err := got.Write([]byte("made"))
		require.NoError(t, err)
		control := http.NewResponseController(got)
		require.NoError(t, control.Flush())
		_, _, err = control.Hijack()
		require.ErrorIs(t, err, http.ErrNotSupported)
		require.ErrorIs(t, control.EnableFullDuplex(), http.ErrNotSupported)
		_, ok := got.(http.Hijacker)
		require.False(t, ok)
		got.WriteHeader(500) // too late, as in net/http
		require.Zero(t, w.Body.Len())
		require.Empty(t, w.Header())
		require.False(t, w.Flushed)
	})
	h.ServeHTTP(w, netRequest("POST", "/payments", "{}"))
	require.Equal(t, 200, w.Code)
	require.Equal(t, "made", w.Body.String())
	require.Equal(t, "1", w.Header().Get("X-Own"))
	require.Empty(t, w.Header().Get("X-Late"))
}

func TestInvalidStatusPanicsInTheHandler(t *testing.T) {
	for _, status := range []int{0, 99, 1000} {
		h := mounted(netContract(t, memory()), nil, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		require.Panics(t, func() { answerOf(h, netRequest("POST", "/payments", "{}")) })
	}
	h := mounted(netContract(t, memory()), nil, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(700) })
	require.Equal(t, 700, answerOf(h, netRequest("POST", "/payments", "{}")).Code, "as net/http lets it")
	require.Equal(t, 409, answerOf(h, netRequest("POST", "/payments", "{}")).Code)
}

// What an outer middleware sets is that exchange's own.
func TestOuterHeaders(t *testing.T) {
	inner := mounted(netContract(t, memory()), nil, func(w http.ResponseWriter, _ *http.Request) {
		require.Equal(t, []string{"Origin"}, w.Header()["Vary"])
		w.Header().Add("Vary", "Accept")
		w.Header().Del("X-Frame")
		w.WriteHeader(200)
	})
	ids := []string{"1", "2"}
	for i, id := range ids {
		w := httptest.NewRecorder()
		w.Header().Set("X-Request-Id", id)
		w.Header().Set("Vary", "Origin")
		w.Header().Set("X-Frame", "deny")
		inner.ServeHTTP(w, netRequest("POST", "/payments", "{}"))
		require.Equal(t, i == 1, w.Header().Get(HeaderReplayed) == "true")
		require.Equal(t, id, w.Header().Get("X-Request-Id"))
		require.Equal(t, []string{"Origin", "Accept"}, w.Header()["Vary"])
		require.Equal(t, "deny", w.Header().Get("X-Frame"))
	}
}

// A response beyond the limit is recorded without its body, and its first caller hears what later ones hear.
func TestResponseBodyLimit(t *testing.T) {
	status, n := 201, 0
	h := mounted(netContract(t, memory()), &MiddlewareOptions{MaxResponse: 4},
		func(w http.ResponseWriter, r *http.Request) {
			if n++; status == 400 {
				idem.SetNotExecuted(r.Context())
			}
			w.WriteHeader(status)
			_, err := io.WriteString(w, "1234")
			require.NoError(t, err)
			for range 2 {
				wrote, err := io.WriteString(w, "5")
				require.ErrorIs(t, err, ErrResponseTooLarge)
				require.Zero(t, wrote)
			}
		})
	for range 2 {
		w := answerOf(h, netRequest("POST", "/payments", "{}"))
		require.Equal(t, 409, w.Code)
		require.Contains(t, w.Body.String(), CodeOutcomeUnavailable)
		require.Contains(t, w.Body.String(), `"recorded_status":201`)
	}
	require.Equal(t, 1, n)

	// What is not recorded is not called recorded, and loses its body. Where nothing was executed, it runs again.
	for other, runs := range map[int]int{500: 1, 400: 2} {
		status, n = other, 0
		for range runs {
			r := netRequest("POST", "/payments", "{}")
			r.Header.Set("Idempotency-Key", "another-key-of-this-test-"+strconv.Itoa(other))
			w := answerOf(h, r)
			require.Equal(t, other, w.Code)
			require.Zero(t, w.Body.Len())
		}
		require.Equal(t, runs, n)
	}
}

// A container replays what a Lambda function recorded: its Base64 is taken off.
func TestReplayOfAnotherGatewaysResponse(t *testing.T) {
	c := netContract(t, memory())
	r := netRequest("POST", "/payments", "{}")
	event := &Request{Method: "POST", Route: "/payments", Header: r.Header, Body: []byte("{}"), Source: r}
	_, err := c.Serve(t.Context(), event, func(context.Context) (*Response, error) {
		return &Response{
			Status: 201, Base64: true, Body: []byte("AAEC/w=="),
			Headers:      map[string]string{"content-type": "image/png", "vary": "Never"},
			MultiHeaders: map[string][]string{"Vary": {"Accept", "Origin"}},
		}, nil
	})
	require.NoError(t, err)
	w := answerOf(mounted(c, nil, func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") }), r)
	require.Equal(t, 201, w.Code)
	require.Equal(t, []byte{0, 1, 2, 255}, w.Body.Bytes())
	require.Equal(t, "image/png", w.Header().Get("Content-Type"))
	require.Equal(t, []string{"Accept", "Origin"}, w.Header()["Vary"])
	require.Equal(t, "4", w.Header().Get("Content-Length"))

	event.Fits = func(*Response) bool { return false }
	require.Equal(t, CodeOutcomeUnavailable, problemIn(t, serve(t, c, event, nil)).Code, "a gateway with a lower limit")
}

// exchange sends one request over a connection of its own and returns all that comes back, without the date.
func exchange(t *testing.T, h http.Handler, request string) string {
	t.Helper()
	var serving sync.RWMutex // a server that closes waits for no handler that has hijacked its connection
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serving.RLock()
		defer serving.RUnlock()
		h.ServeHTTP(w, r)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Start()
	defer s.Close()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, request)
	require.NoError(t, err)
	if strings.Contains(request, "Content-Length: 999") {
		require.NoError(t, conn.(*net.TCPConn).CloseWrite()) // the body breaks off
	}
	got, _ := io.ReadAll(conn)
	serving.Lock()
	defer serving.Unlock()
	return regexp.MustCompile(`Date: [^\r]*\r\n`).ReplaceAllString(string(got), "")
}

// handlers that do what the live mode cannot pass on, too.
var wireHandlers = map[string]http.HandlerFunc{
	"echo": func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		fmt.Fprint(w, r.Method, r.ContentLength, len(r.TransferEncoding), r.Pattern, r.PathValue("id"), len(b), err)
	},
	"status":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) },
	"nothing": func(http.ResponseWriter, *http.Request) {},
	"cookies": func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Set-Cookie"] = []string{"a=1", "b=2"}
		w.Header()["x-own-Case"] = []string{"kept"}
		w.WriteHeader(201)
		_, _ = w.Write([]byte("done"))
	},
	"stream": func(w http.ResponseWriter, _ *http.Request) {
		for range 3 {
			_, _ = w.Write([]byte("part"))
			w.(http.Flusher).Flush()
		}
	},
	"by type": func(w http.ResponseWriter, _ *http.Request) {
		_, err := w.(io.StringWriter).WriteString("text ")
		n, readErr := w.(io.ReaderFrom).ReadFrom(strings.NewReader("and a file "))
		_ = w.(http.Hijacker)
		fmt.Fprint(w, err, n, readErr, w.(interface{ CloseNotify() <-chan bool }).CloseNotify() == nil)
	},
	"an empty file": func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.(io.ReaderFrom).ReadFrom(strings.NewReader(""))
		w.WriteHeader(http.StatusConflict)
	},
	"controller": func(w http.ResponseWriter, _ *http.Request) {
		rc := http.NewResponseController(w)
		fmt.Fprint(w, rc.SetReadDeadline(time.Now().Add(time.Minute)), rc.Flush())
	},
	"trailer": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		_, _ = w.Write([]byte("body"))
		w.Header().Set("X-Sum", "1")
	},
	"hints": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</style.css>")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(200)
	},
	"large":      func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(bytes.Repeat([]byte("x"), 5000)) },
	"no content": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) },
	"copy":       func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, strings.NewReader("copied")) },
	"panic":      func(http.ResponseWriter, *http.Request) { panic("the handler's") },
	"abort": func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("half"))
		panic(http.ErrAbortHandler)
	},
	"hijack": func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_, _ = io.WriteString(conn, "raw bytes")
			_ = conn.Close()
		}
	},
	"form": func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.ParseForm(), r.Form) },
}

// The bytes on the wire are those of the handler alone, whatever the request, the handler and the store do.
func TestTheWireInShadowIsTheHandlersOwn(t *testing.T) {
	const post, key = "POST /transfers/7 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n",
		"Idempotency-Key: " + testKey + "\r\n"
	requests := map[string]string{
		"plain":      post + key + "Content-Length: 2\r\n\r\n{}",
		"no key":     post + "Content-Length: 2\r\n\r\n{}",
		"no body":    post + "\r\n",
		"chunked":    post + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"large":      post + key + "Content-Length: 300\r\n\r\n" + strings.Repeat("x", 300),
		"broken off": post + key + "Content-Length: 999\r\n\r\n{}",
		"form":       post + "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 3\r\n\r\na=b",
		"undeclared": strings.Replace(post, "transfers", "refunds", 1) + "Content-Length: 2\r\n\r\n{}",
	}
	faults := map[string]idemtest.Fault{"up": idemtest.Pass, "down": idemtest.Refuse}
	for fault, do := range faults {
		store := idemtest.NewFaults(memstore.New())
		store.Always(do)
		contract, seen := inShadow(t, store, SingleTenant, nil)
		for name, h := range wireHandlers {
			for what, request := range requests {
				t.Run(fault+"/"+name+"/"+what, func(t *testing.T) {
					mux := func(wrap func(http.Handler) http.Handler) http.Handler {
						m := http.NewServeMux()
						m.Handle("POST /transfers/{id}", wrap(h))
						m.Handle("POST /refunds/{id}", wrap(h))
						return m
					}
					want := exchange(t, mux(func(h http.Handler) http.Handler { return h }), request)
					for range 2 {
						before := len(seen.all)
						got := exchange(t, mux(func(h http.Handler) http.Handler {
							return contract.Middleware(h, &MiddlewareOptions{MaxRequest: 200, MaxResponse: 100})
						}), request)
						require.Equal(t, want, got)
						require.Equal(t, before+1, len(seen.all), "one notice a request")
					}
				})
			}
		}
	}
}
