package cloud

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
)

const account, region = "111111111111", "eu-west-1"

// Server is an account in one region, bootstrapped for CDK. It is for concurrent
// use.
type Server struct {
	http *httptest.Server // on 127.0.0.1

	mu       sync.Mutex
	calls    []string
	refused  []string
	objects  map[string][]byte // by key, in the bucket for assets
	stacks   map[string]*stack // by name
	deployed []string
}

// New starts an account. Close ends it.
func New() *Server {
	s := &Server{objects: map[string][]byte{}, stacks: map[string]*stack{}}
	s.http = httptest.NewServer(http.HandlerFunc(s.serve))
	return s
}

// Close ends the server.
func (s *Server) Close() { s.http.Close() }

// Env is what leads a command to this account and to nowhere else: the server is
// also the proxy of what is not plain HTTP to it, and refuses it.
func (s *Server) Env() []string {
	return []string{
		"AWS_ENDPOINT_URL=" + s.http.URL, "AWS_REGION=" + region, "AWS_DEFAULT_REGION=" + region,
		"AWS_ACCESS_KEY_ID=AKIALOCALLOCALLOCAL1", "AWS_SECRET_ACCESS_KEY=secret", "AWS_SESSION_TOKEN=", "AWS_PROFILE=",
		"AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null", "AWS_EC2_METADATA_DISABLED=true",
		"HTTPS_PROXY=" + s.http.URL, "https_proxy=" + s.http.URL, "HTTP_PROXY=", "http_proxy=", "NO_PROXY=127.0.0.1",
		"no_proxy=127.0.0.1",
	}
}

// State is what an account has seen and has.
type State struct {
	Calls    []string          // in order: service:Action
	Refused  []string          // calls of other services, and connections to other hosts
	Objects  map[string][]byte // by key, in the bucket for assets
	Deployed []string          // the stacks whose change sets were executed, in order
	// Templates that were deployed, by stack.
	Templates map[string]string
}

// State returns the account's state.
func (s *Server) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	templates := map[string]string{}
	for name, st := range s.stacks {
		templates[name] = st.template
	}
	return State{
		slices.Clone(s.calls), slices.Clone(s.refused), maps.Clone(s.objects), slices.Clone(s.deployed), templates,
	}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodConnect || r.URL.IsAbs() {
		s.refuse(w, "connection to "+r.Host)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	target := r.Header.Get("X-Amz-Target")
	switch {
	case target == "AmazonSSM.GetParameter":
		s.parameter(w)
	case target != "":
		s.refuse(w, target)
	case r.Method == http.MethodPost && r.URL.Path == "/":
		form, _ := url.ParseQuery(string(body))
		s.query(w, form)
	default:
		s.bucket(w, r, body)
	}
}

// query serves the services that take forms and answer in XML.
func (s *Server) query(w http.ResponseWriter, form url.Values) {
	action := form.Get("Action")
	call := map[string]string{"2011-06-15": "sts:", "2010-05-15": "cloudformation:"}[form.Get("Version")] + action
	do, known := actions[call]
	if !known {
		s.refuse(w, call)
		return
	}
	s.calls = append(s.calls, call)
	result, f := do(s, form)
	if f != nil {
		write(w, http.StatusBadRequest, tag("ErrorResponse",
			tag("Error", tag("Type", "Sender"), tag("Code", f.code), text("Message", f.message))))
		return
	}
	write(w, http.StatusOK, tag(action+"Response", tag(action+"Result", result)))
}

// parameter is the version of the bootstrap stack: at least what the templates ask for.
func (s *Server) parameter(w http.ResponseWriter) {
	s.calls = append(s.calls, "ssm:GetParameter")
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	_ = json.NewEncoder(w).Encode(map[string]any{"Parameter": map[string]any{"Type": "String", "Value": "30"}})
}

// bucket serves S3, with the bucket's name in the path.
func (s *Server) bucket(w http.ResponseWriter, r *http.Request, body []byte) {
	name, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	q := r.URL.Query()
	call := ""
	switch {
	case name != "cdk-hnb659fds-assets-"+account+"-"+region:
	case key != "" && r.Method == http.MethodPut && len(q) <= 1: // x-id names the operation
		call, s.objects[key] = "s3:PutObject", body
		w.Header().Set("ETag", `"etag"`)
	case key != "" || r.Method != http.MethodGet:
	case q.Has("location"):
		call = "s3:GetBucketLocation"
		write(w, http.StatusOK, tag("LocationConstraint", region))
	case q.Has("encryption"):
		call = "s3:GetBucketEncryption"
		write(w, http.StatusOK, tag("ServerSideEncryptionConfiguration", tag("Rule",
			tag("ApplyServerSideEncryptionByDefault", tag("SSEAlgorithm", "AES256")))))
	case q.Get("list-type") == "2":
		call = "s3:ListObjectsV2"
		found := []string{tag("IsTruncated", "false")}
		for key := range s.objects {
			if strings.HasPrefix(key, q.Get("prefix")) {
				found = append(found, tag("Contents", text("Key", key)))
			}
		}
		write(w, http.StatusOK, tag("ListBucketResult", found...))
	}
	if call == "" {
		s.refuse(w, r.Method+" "+r.URL.String())
		return
	}
	s.calls = append(s.calls, call)
}

func (s *Server) refuse(w http.ResponseWriter, what string) {
	s.refused = append(s.refused, what)
	http.Error(w, "this account has no such thing: "+what, http.StatusNotImplemented)
}
