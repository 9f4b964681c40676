# Untested: written from the documentation of Nix. `nix run . -- demo` builds from source.
{
  description = "Run coding agents unattended";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs =
    { self, nixpkgs }:
    let
      systems = [ "x86_64-linux" "aarch64-linux" ];
      each = make: nixpkgs.lib.genAttrs systems (system: make nixpkgs.legacyPackages.${system});
      version = (builtins.fromTOML (builtins.readFile ./Cargo.toml)).workspace.package.version;
    in
    {
      packages = each (pkgs: {
        default = pkgs.rustPlatform.buildRustPackage {
          pname = "dogwatch";
          inherit version;
          src = self;
          cargoLock.lockFile = ./Cargo.lock;
          buildType = "dist";
          cargoBuildFlags = [ "-p" "dogwatch" ];
          env.DOGWATCH_COMMIT = self.shortRev or self.dirtyShortRev or "";
          # The tests start processes, browsers and other tools; scripts/test runs them.
          doCheck = false;
          nativeBuildInputs = [ pkgs.installShellFiles ];
          postInstall = ''
            $out/bin/dogwatch man --dir man
            installManPage man/*.1
            installShellCompletion --cmd dogwatch \
              --bash <($out/bin/dogwatch completions bash) \
              --zsh <($out/bin/dogwatch completions zsh) \
              --fish <($out/bin/dogwatch completions fish)
          '';
          meta.mainProgram = "dogwatch";
        };
      });
    };
}
