package s3

import (
	"bytes"
	"cmp"
	"crypto/md5" // what ETags are made of
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/store/storetest"
)

// memoryGateway starts a server in memory with the same bucket, for a test in virtual time. It knows the requests that
// a Store sends, and no signatures. TestS3 compares it with versitygw.
func memoryGateway(tb testing.TB) *storetest.Gateway { return storetest.NewGateway(tb, newObjects()) }

// objects is a server of objects.
type objects struct {
	mu      sync.Mutex
	there   map[string]*version
	uploads map[string]*upload // by id
	last    int                // id
}

// version is one content of an object, or a part of an upload.
type version struct {
	data     []byte
	etag     string
	meta     http.Header
	modified time.Time
}

// upload is an object that arrives in parts.
type upload struct {
	key   string
	meta  http.Header
	begun time.Time
	parts map[int]*version
}

func newObjects() *objects {
	return &objects{there: map[string]*version{}, uploads: map[string]*upload{}}
}

// refusal is an answer with an error.
type refusal struct {
	status int
	code   string
}

var (
	noKey    = &refusal{http.StatusNotFound, "NoSuchKey"}
	noUpload = &refusal{http.StatusNotFound, "NoSuchUpload"}
	noMatch  = &refusal{http.StatusPreconditionFailed, "PreconditionFailed"}
	noMethod = &refusal{http.StatusNotImplemented, "NotImplemented"}
	badPart  = &refusal{http.StatusBadRequest, "InvalidPart"}
	badBody  = &refusal{http.StatusBadRequest, "BadDigest"}
	noRange  = &refusal{http.StatusRequestedRangeNotSatisfiable, "InvalidRange"}
)

// ServeHTTP implements http.Handler.
func (o *objects) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has left
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	no := &refusal{http.StatusNotFound, "NoSuchBucket"}
	switch query := r.URL.Query(); {
	case bucket != storetest.Bucket:
	case key == "" && r.Method == http.MethodGet:
		no = o.list(w, r)
	case query.Has("uploads") || query.Has("uploadId"):
		no = o.upload(w, r, key, body)
	case r.Method == http.MethodPut:
		no = o.put(w, r, key, body)
	case r.Method == http.MethodDelete:
		delete(o.there, key)
		w.WriteHeader(http.StatusNoContent)
		return
	case r.Method == http.MethodGet, r.Method == http.MethodHead:
		no = o.get(w, r, o.there[key])
	default:
		no = noMethod
	}
	if no == nil {
		return
	}
	w.WriteHeader(no.status)
	if r.Method != http.MethodHead {
		fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message></Error>", no.code, no.code)
	}
}

// newVersion checks a body and takes its metadata.
func newVersion(r *http.Request, body []byte) (*version, *refusal) {
	sum := md5.Sum(body)
	if sent := r.Header.Get("Content-Md5"); sent != "" && sent != base64.StdEncoding.EncodeToString(sum[:]) {
		return nil, badBody
	}
	return &version{body, fmt.Sprintf("%x", sum), metaOf(r), time.Now()}, nil
}

func metaOf(r *http.Request) http.Header {
	meta := r.Header.Clone()
	maps.DeleteFunc(meta, func(name string, _ []string) bool { return !strings.HasPrefix(name, "X-Amz-Meta-") })
	return meta
}

// matches reports whether the conditions of a request hold.
func (v *version) matches(r *http.Request) bool {
	etag := strings.Trim(r.Header.Get("If-Match"), `"`)
	return (etag == "" || v != nil && etag == v.etag) && (r.Header.Get("If-None-Match") == "" || v == nil)
}

func (o *objects) put(w http.ResponseWriter, r *http.Request, key string, body []byte) *refusal {
	if there := o.there[key]; there == nil && r.Header.Get("If-Match") != "" {
		return noKey
	} else if !there.matches(r) {
		return noMatch
	}
	made, no := newVersion(r, body)
	if no != nil {
		return no
	}
	o.there[key] = made
	w.Header().Set("ETag", `"`+made.etag+`"`)
	return nil
}

func (o *objects) get(w http.ResponseWriter, r *http.Request, v *version) *refusal {
	switch {
	case v == nil:
		return noKey
	case !v.matches(r):
		return noMatch
	case len(v.data) == 0 && r.Header.Get("Range") != "":
		return noRange
	}
	maps.Copy(w.Header(), v.meta)
	w.Header().Set("ETag", `"`+v.etag+`"`)
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", v.modified, bytes.NewReader(v.data))
	return nil
}

// upload answers the requests of an upload.
func (o *objects) upload(w http.ResponseWriter, r *http.Request, key string, body []byte) *refusal {
	query := r.URL.Query()
	if query.Has("uploads") && r.Method == http.MethodPost {
		o.last++
		id := fmt.Sprintf("upload-%06d", o.last)
		o.uploads[id] = &upload{key, metaOf(r), time.Now(), map[int]*version{}}
		fmt.Fprintf(w, "<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>", id)
		return nil
	}
	id := query.Get("uploadId")
	u := o.uploads[id]
	if u == nil || u.key != key {
		return noUpload
	}
	switch r.Method {
	case http.MethodPut:
		number, err := strconv.Atoi(query.Get("partNumber"))
		part, no := newVersion(r, body)
		if err != nil || no != nil {
			return cmp.Or(no, badPart)
		}
		u.parts[number] = part
		w.Header().Set("ETag", `"`+part.etag+`"`)
	case http.MethodDelete:
		delete(o.uploads, id)
		w.WriteHeader(http.StatusNoContent)
	case http.MethodPost:
		made, no := u.complete(body)
		if no != nil {
			return no
		}
		delete(o.uploads, id)
		o.there[key] = made
		fmt.Fprintf(w, "<CompleteMultipartUploadResult><Key>%s</Key><ETag>%s</ETag></CompleteMultipartUploadResult>", key,
			made.etag)
	default:
		return noMethod
	}
	return nil
}

// complete makes the object of the parts that a body names.
func (u *upload) complete(body []byte) (*version, *refusal) {
	var named struct {
		Part []struct {
			PartNumber int
			ETag       string
		}
	}
	if xml.Unmarshal(body, &named) != nil || len(named.Part) == 0 {
		return nil, badPart
	}
	made := &version{meta: u.meta, modified: time.Now()}
	for _, p := range named.Part {
		part := u.parts[p.PartNumber]
		if part == nil || strings.Trim(p.ETag, `"`) != part.etag {
			return nil, badPart
		}
		made.data = append(made.data, part.data...)
	}
	made.etag = fmt.Sprintf("%x-%d", md5.Sum(made.data), len(named.Part))
	return made, nil
}

// list answers a page of objects, or of uploads.
func (o *objects) list(w http.ResponseWriter, r *http.Request) *refusal {
	type entry struct {
		Key          string
		UploadID     string `xml:"UploadId"`
		ETag         string
		Size         int
		LastModified time.Time
		Initiated    time.Time
	}
	type folder struct{ Prefix string }
	query := r.URL.Query()
	most := 1000
	for _, name := range []string{"max-keys", "max-uploads"} {
		if n, err := strconv.Atoi(query.Get(name)); err == nil && n > 0 {
			most = min(most, n)
		}
	}
	after := entry{Key: cmp.Or(query.Get("continuation-token"), query.Get("start-after"), query.Get("key-marker")),
		UploadID: cmp.Or(query.Get("upload-id-marker"), "\xff")}
	order := func(a, b entry) int {
		return cmp.Or(strings.Compare(a.Key, b.Key), strings.Compare(a.UploadID, b.UploadID))
	}
	var page []entry
	add := func(e entry) {
		if strings.HasPrefix(e.Key, query.Get("prefix")) && order(e, after) > 0 {
			page = append(page, e)
		}
	}
	var answer struct {
		XMLName               xml.Name
		IsTruncated           bool
		NextContinuationToken string
		NextKeyMarker         string
		NextUploadIDMarker    string `xml:"NextUploadIdMarker"`
		Contents              []entry
		CommonPrefixes        []folder
		Upload                []entry
	}
	switch {
	case query.Has("uploads"):
		for id, u := range o.uploads {
			add(entry{Key: u.key, UploadID: id, Initiated: u.begun})
		}
	case query.Get("list-type") == "2":
		for key, v := range o.there {
			if below, ok := strings.CutPrefix(key, query.Get("prefix")); ok && query.Get("delimiter") != "" {
				if folder, _, ok := strings.Cut(below, "/"); ok {
					key = query.Get("prefix") + folder + "/"
				}
			}
			add(entry{Key: key, ETag: v.etag, Size: len(v.data), LastModified: v.modified.Truncate(time.Second)})
		}
	default:
		return noMethod
	}
	slices.SortFunc(page, order)
	page = slices.CompactFunc(page, func(a, b entry) bool { return order(a, b) == 0 }) // folders
	if answer.IsTruncated = len(page) > most; answer.IsTruncated {
		page = page[:most]
		last := page[most-1]
		answer.NextContinuationToken, answer.NextKeyMarker, answer.NextUploadIDMarker = last.Key, last.Key, last.UploadID
	}
	answer.XMLName.Local = "ListBucketResult"
	for _, e := range page {
		if strings.HasSuffix(e.Key, "/") {
			answer.CommonPrefixes = append(answer.CommonPrefixes, folder{e.Key})
		} else {
			answer.Contents = append(answer.Contents, e)
		}
	}
	if query.Has("uploads") {
		answer.XMLName.Local, answer.Contents, answer.Upload = "ListMultipartUploadsResult", nil, page
	}
	if err := xml.NewEncoder(w).Encode(answer); err != nil {
		return noMethod
	}
	return nil
}
