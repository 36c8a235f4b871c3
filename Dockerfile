# The image holds the program and the roots of certificate authorities, and nothing else. docs/install.md says how to run it.
FROM --platform=$BUILDPLATFORM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETOS
ARG TARGETARCH
ARG VERSION
RUN GOOS=$TARGETOS GOARCH=$TARGETARCH make build VERSION=$VERSION OUT=/out/bulkscan && mkdir /out/data

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/bulkscan /usr/bin/bulkscan
COPY --from=build --chown=65532:65532 /out/data /data
# What goes to disk for a while goes to the volume too, so that everything else may be read-only.
ENV TMPDIR=/data
USER 65532:65532
WORKDIR /data
VOLUME /data
ENTRYPOINT ["/usr/bin/bulkscan"]
