package cloud

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// Server is an account in one region, bootstrapped for CDK. It is for concurrent
// use.
type Server struct {
	// URL is the endpoint, on 127.0.0.1.
	URL string
	// Account and Region that it plays.
	Account, Region string

	http *httptest.Server

	mu      sync.Mutex
	calls   []string
	refused []string
	objects map[string][]byte // bucket/key
	stacks  map[string]*stack // by name
	number  int               // of what was made last
}

// New starts an account. Close ends it.
func New(account, region string) *Server {
	s := &Server{Account: account, Region: region, objects: map[string][]byte{}, stacks: map[string]*stack{}}
	s.http = httptest.NewServer(http.HandlerFunc(s.serve)) // on 127.0.0.1
	s.URL = s.http.URL
	return s
}

// Close ends the server.
func (s *Server) Close() { s.http.Close() }

// Env is what leads a command to this account and to nowhere else: the server is
// also the proxy of what is not plain HTTP to it, and refuses it.
func (s *Server) Env() []string {
	return []string{
		"AWS_ENDPOINT_URL=" + s.URL, "AWS_REGION=" + s.Region, "AWS_DEFAULT_REGION=" + s.Region,
		"AWS_ACCESS_KEY_ID=" + accessKey, "AWS_SECRET_ACCESS_KEY=secret", "AWS_SESSION_TOKEN=", "AWS_PROFILE=",
		"AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null", "AWS_EC2_METADATA_DISABLED=true",
		"HTTPS_PROXY=" + s.URL, "https_proxy=" + s.URL, "HTTP_PROXY=", "http_proxy=", "NO_PROXY=127.0.0.1",
		"no_proxy=127.0.0.1",
	}
}

const accessKey = "AKIALOCALLOCALLOCAL1"

// Calls returns the names of the calls since the last Calls, in order:
// service:Action.
func (s *Server) Calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

// Refused returns the requests that this account does not know: calls of other
// services, and connections to other hosts.
func (s *Server) Refused() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.refused)
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodConnect || r.URL.IsAbs() {
		s.refuse(w, "connection to "+r.Host)
		return
	}
	if target := r.Header.Get("X-Amz-Target"); target != "" {
		s.ssm(w, r, target)
		return
	}
	if r.Method == http.MethodPost && r.URL.Path == "/" {
		if err := r.ParseForm(); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.query(w, r.PostForm)
		return
	}
	s.bucket(w, r)
}

// query serves the services that take forms and answer in XML.
func (s *Server) query(w http.ResponseWriter, form url.Values) {
	action := form.Get("Action")
	switch form.Get("Version") {
	case "2011-06-15":
		s.called("sts:" + action)
		s.sts(w, form)
	case "2010-05-15":
		s.called("cloudformation:" + action)
		s.cloudformation(w, form)
	default:
		s.refuse(w, fmt.Sprintf("call of %s, version %s", action, form.Get("Version")))
	}
}

func (s *Server) called(call string) { s.calls = append(s.calls, call) }

func (s *Server) refuse(w http.ResponseWriter, what string) {
	s.refused = append(s.refused, what)
	http.Error(w, "this account has no such thing: "+what, http.StatusNotImplemented)
}

// next returns an id in the form of a UUID that nothing else has.
func (s *Server) next() string {
	s.number++
	return fmt.Sprintf("00000000-0000-4000-8000-%012d", s.number)
}

// members are the values of a form's list.
func members(form url.Values, name string) []string {
	var all []string
	for i := 1; ; i++ {
		v, ok := form[fmt.Sprintf("%s.member.%d", name, i)]
		if !ok {
			return all
		}
		all = append(all, strings.Join(v, ""))
	}
}
