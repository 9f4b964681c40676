# Untested: written from Homebrew's documentation. Replace VERSION, SHA256 and REPOSITORY.
class Dogwatch < Formula
  desc "Run coding agents unattended"
  homepage "REPOSITORY"
  url "REPOSITORY/releases/download/vVERSION/dogwatch-VERSION-x86_64-linux-gnu.tar.gz"
  sha256 "SHA256"
  license any_of: ["MIT", "Apache-2.0"]

  depends_on arch: :x86_64
  depends_on :linux

  def install
    bin.install "dogwatch"
    man1.install Dir["man/*.1"]
    bash_completion.install "completions/dogwatch"
    zsh_completion.install "completions/_dogwatch"
    fish_completion.install "completions/dogwatch.fish"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/dogwatch --version")
    system bin/"dogwatch", "demo"
  end
end
