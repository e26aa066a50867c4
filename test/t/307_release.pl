
# The version of a release stands in several places; they agree, and "make release" changes
# all of them, or refuses.  META.json is as PGXN requires, and the bundle has all that is in the
# repository.  The packages are those of debian/control.in; the Compose file uses settings and releases
# that exist, and the Dockerfile does what it says, as far as that can be seen without containers.

use strict;
use warnings;

use Cwd qw(abs_path);
use Digest::SHA;
use File::Basename qw(dirname);
use IPC::Run;
use JSON::PP qw(decode_json);
use Test::More;

use PostgreSQL::Test::Utils;


my $top = abs_path(dirname(__FILE__) . '/../..');

sub text { return slurp_file("$_[0]/$_[1]"); }

# The places in a tree that name the version, and what they say.
sub versions
{
	my ($tree) = @_;
	my $meta = decode_json(text($tree, 'META.json'));
	my ($changelog) = text($tree, 'debian/changelog') =~ /^zklock \(([\d.]+)-\d+\)/;
	my ($control) = text($tree, 'zklock.control') =~ /^default_version = '(.*)'/m;
	return {
		'META.json' => $meta->{version},
		'META.json, of the extension' => $meta->{provides}{zklock}{version},
		'debian/changelog' => $changelog,
		'zklock.control' => $control,
	};
}

sub all_are
{
	my ($tree, $version, $name) = @_;
	my $series = $version =~ s/\.\d+$//r;
	my $found = versions($tree);
	is_deeply($found, { map { $_ => $_ eq 'zklock.control' ? $series : $version } keys %$found }, $name);
	return;
}

sub run_it
{
	my ($dir, @command) = @_;
	my ($out, $err);
	IPC::Run::run(\@command, '<', \'', '>', \$out, '2>', \$err, init => sub { chdir $dir or die $! });
	return { out => $out, err => $err, status => $? >> 8 };
}

my $meta = decode_json(text($top, 'META.json'));
my $version = $meta->{version};

all_are($top, $version, 'all places name one version');
my $series = $version =~ s{\.\d+$}{}r;
ok(glob("$top/zklock--*--$series.sql"), "the SQL objects of that version are there");
like(text($top, 'CHANGELOG.md'), qr/^## \Q@{[ $version =~ s{\.\d+$}{}r ]}\E/m, 'CHANGELOG.md has a section for it');

# What was released stays as it was.
my %sum = (
	'1.0' => '39a775b4b3a92e3d5ae0be6cdec56d713b0d5966f732481340f4c3f680d14ded',
	'1.0--1.1' => 'bb57395d59559cba6883824cf1f8cdb25a8437c3250851e6832a90e4776e96f3');
is(Digest::SHA->new(256)->addfile("$top/zklock--$_.sql")->hexdigest, $sum{$_}, "zklock--$_.sql is as it was released") foreach sort keys %sum;

# What of META.json is not as https://pgxn.org/meta/spec.txt requires.
sub problems_of
{
	my ($m) = @_;
	my ($term, $text, $semver) = (qr{^[^\s/\\[:cntrl:]]{2,}$}, qr/\S/, qr/^\d+\.\d+\.\d+(?:-[\w.-]+)?$/);
	my $url = qr{^(?:https?|git|ssh)://[\w.-]+(?:/\S*)?$};
	my %must = (
		'name' => [ $m->{name}, $term ],
		'version' => [ $m->{version}, $semver ],
		'abstract' => [ $m->{abstract}, $text ],
		'maintainer' => [ $m->{maintainer}, qr/^\S[^<>]*(?: <[^<>\s@]+@[\w.-]+>)?$/ ],
		'license' => [ $m->{license}, qr/^postgresql$/ ],
		'release_status' => [ $m->{release_status}, qr/^(?:stable|testing|unstable)$/ ],
		'meta-spec version' => [ $m->{'meta-spec'}{version}, qr/^1\.0\.\d+$/ ],
		'meta-spec url' => [ $m->{'meta-spec'}{url}, $url ],
		'the extension' => [ join(' ', keys %{ $m->{provides} // {} }), qr/^zklock$/ ],
		(map { ("resource $_" => [ $m->{resources}{$_}, $url ]) } grep { !ref $m->{resources}{$_} } keys %{ $m->{resources} // {} }),
		(map { ("provides $_ version" => [ $m->{provides}{$_}{version}, $semver ]) } keys %{ $m->{provides} // {} }),
		(map { ("requires $_" => [ $m->{prereqs}{runtime}{requires}{$_}, $semver ]) } keys %{ $m->{prereqs}{runtime}{requires} // {} }),
		(map { ("tag $_" => [ $_, qr{^[^/\\[:cntrl:]]{1,255}$} ]) } @{ $m->{tags} // [] }));
	my %known = map { $_ => 1 } qw(name version abstract description maintainer license provides prereqs resources release_status
	  generated_by meta-spec tags no_index);
	return ((map { "unknown key $_" } grep { !$known{$_} && !/^x_/i } sort keys %$m),
		(map { "no file $_" } grep { !defined || !-f "$top/$_" } map { @{$_}{qw(file docfile)} } values %{ $m->{provides} // {} }),
		grep { ($must{$_}[0] // '') !~ $must{$_}[1] } sort keys %must);
}

is(join(', ', problems_of($meta)), '', 'META.json');
foreach ([ 'version', '1.2' ], [ 'maintainer', '' ], [ 'licence', 'postgresql' ], [ 'resources', { homepage => 'here' } ],
	[ 'provides', { zklock => { file => 'zklock.sql', docfile => 'doc/zklock.md', version => '1.2.0' } } ])
{
	isnt(join(', ', problems_of({ %$meta, $_->[0] => $_->[1] })), '', "META.json with another $_->[0]");
}

# debian/control is made from debian/control.in, here for the oldest version.
is(text($top, 'debian/control'), text($top, 'debian/control.in') =~ s/PGVERSION/15/gr,
	'debian/control is that of debian/control.in');
my ($oldest) = text($top, 'debian/pgversions') =~ /^(\d+)\+$/m;
is("$oldest.0.0", $meta->{prereqs}{runtime}{requires}{PostgreSQL}, 'the oldest PostgreSQL');

# The Compose file.
my $yaml = run_it($top, 'python3', '-c', 'import json, sys, yaml; print(json.dumps(yaml.safe_load(open("package/compose.yaml"))))');
is($yaml->{err}, '', 'package/compose.yaml can be parsed');
my %services = %{ decode_json($yaml->{out})->{services} };
is_deeply([ sort keys %services ], [qw(pg1 pg2 zk1 zk2 zk3)], 'three ZooKeepers and two servers');
foreach my $server (qw(pg1 pg2))
{
	my ($hosts) = $services{$server}{command} =~ /zklock\.hosts=(\S+)/;
	is_deeply([ map { s/:2181$//r } split /,/, $hosts ], [qw(zk1 zk2 zk3)], "$server: zklock.hosts");
	like(text($top, 'src/settings.c'), qr/"\Q$_\E"/, "$server: $_ is a setting")
	  foreach $services{$server}{command} =~ /-c (zklock\.\w+)=/g;
	my $build = $services{$server}{build};
	ok(-f "$top/package/$build->{context}/$build->{dockerfile}", "$server: the Dockerfile");
}

# The Dockerfile: its instructions, and what is run in the stage that builds.  There, the directories of
# the image are in a scratch directory, and the tree is built already.
my $image = PostgreSQL::Test::Utils::tempdir;
my @instructions = map { [ /^(\w+) (.*)$/ ] } grep { /^\w/ } split /\n/, text($top, 'package/Dockerfile') =~ s/\\\n\s*/ /gr;
is(join(' ', grep { !/^(?:ARG|FROM|RUN|COPY|WORKDIR)$/ } map { $_->[0] } @instructions), '', 'Dockerfile: instructions');
my ($image_version) = map { $_->[1] =~ /^POSTGRES=(\d+)$/ } grep { $_->[0] eq 'ARG' } @instructions;
cmp_ok($image_version, '>=', $oldest, 'the image has a PostgreSQL that is supported');
is_deeply([ map { $_->[1] =~ /^(postgres:\S+)/ } grep { $_->[0] eq 'FROM' } @instructions ], [ ('postgres:${POSTGRES}-${RELEASE}') x 2 ],
	'Dockerfile: both images are of the release of Debian that was chosen');
my %stage;
my ($pg_version) = qx{pg_config --version} =~ /(\d+)/;
foreach (@instructions)
{
	my ($instruction, $words) = @$_;
	$stage{$1} = 1 if $instruction eq 'FROM' && $words =~ / AS (\w+)$/;
	ok($stage{$1}, "Dockerfile: $words") if $instruction eq 'COPY' && $words =~ /^--from=(\w+)/;
	next unless $instruction eq 'RUN';
	is(run_it($top, 'bash', '-n', '-c', $words)->{err}, '', "Dockerfile: $words: syntax");
	next unless $words =~ /\bmake\b/ && $words !~ /apt-get/;
	local $ENV{POSTGRES} = $pg_version;
	my $result = run_it($top, 'bash', '-e', '-c', $words =~ s{^make clean +&& +}{}r =~ s{(?<=[ =])/(?=(?:stage|extension)\b)}{$image/}gr);
	is($result->{status}, 0, "Dockerfile: $words") or diag $result->{err};
}
is_deeply([ sort grep { $_ ne 'build' } keys %stage ], ['extension'], 'Dockerfile: two images');
is(scalar(() = run_it($image, 'find', '.', '-name', '*.so*')->{out} =~ m{^\./(?:stage|extension)/\S*/(?:zklock\.so|libzookeeper_st\.so\.2)$}mg), 4,
	'Dockerfile: each has both libraries');

# The manifests that doc/kubernetes.md applies: settings that exist, the layout of package/extension, and the
# ZooKeepers beside them.
my @applied = slurp_file("$top/doc/kubernetes.md") =~ /^kubectl apply -f (\S+)$/mg;
my $manifests = join '', map { text($top, $_) } @applied;
IPC::Run::run([ 'python3', '-c', 'import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(sys.stdin))))' ], '<', \$manifests, '>', \my $parsed);
my %kind = map { $_->{kind} => $_->{spec} } @{ decode_json($parsed) };
is_deeply([ sort keys %kind ], [qw(Cluster Database PodDisruptionBudget Service StatefulSet)], 'package/kubernetes: the manifests');
my $cluster = $kind{Cluster}{postgresql};
like(text($top, 'src/settings.c'), qr/"\Q$_\E"/, "package/kubernetes: $_ is a setting") foreach sort grep { /^zklock\./ } keys %{ $cluster->{parameters} };
is_deeply([ map { s/:2181$//r } split /,/, $cluster->{parameters}{'zklock.hosts'} ],
	[ map { "zk-$_." . $kind{StatefulSet}{serviceName} } 0 .. $kind{StatefulSet}{replicas} - 1 ], 'package/kubernetes: zklock.hosts');
is($cluster->{extensions}[0]{ld_library_path}[0], 'system', 'package/kubernetes: the directory of the client library');
my %zookeeper = map { $_->{name} => $_->{value} } @{ $kind{StatefulSet}{template}{spec}{containers}[0]{env} };
is($zookeeper{ZOO_AUTOPURGE_PURGEINTERVAL}, 1, 'package/kubernetes: ZooKeeper removes old snapshots and logs');
is($kind{Database}{extensions}[0]{version}, $series, 'package/kubernetes: the version');

# "make install" installs these files, below the directories that pg_config names.
my $stage = PostgreSQL::Test::Utils::tempdir;
is(run_it($top, qw(make -s install), "DESTDIR=$stage")->{status}, 0, 'make install');
is_deeply([ sort map { s{.*/}{}r } split /\n/, run_it($stage, qw(find . -type f))->{out} ],
	[ sort 'zklock.so', 'zklock.control', qw(zklock--1.0.sql zklock--1.0--1.1.sql zklock--1.1--1.2.sql zklock--1.2--1.1.sql zklock-run), 'zklock-run.1' ],
	'what is installed');

# --- a bundle, and a release, in a repository of their own ---

my $copy = PostgreSQL::Test::Utils::tempdir;
local @ENV{qw(GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL GIT_CONFIG_GLOBAL)} =
  (qw(test test@example.org test test@example.org), '/dev/null');

sub git
{
	my (@command) = @_;
	my $result = run_it($copy, 'git', @command);
	is($result->{status}, 0, "git @command") or diag $result->{err};
	return $result->{out};
}

is(run_it($top, 'cp', '-rT', '.', $copy)->{status}, 0, 'copied');
my $changes = text($copy, 'CHANGELOG.md') =~ s/^## .*$/## $series (unreleased)/mr;
unlink "$copy/CHANGELOG.md";			# as before a release, also if this tree is one
append_to_file("$copy/CHANGELOG.md", $changes);
git(qw(init -q));
git(qw(add .));
git(qw(commit -q -m first));

my $bundle = run_it($copy, 'package/dist', "$copy/test/out");
is($bundle->{out}, "$copy/test/out/zklock-$version.zip\n", 'a bundle');
my $unpacked = PostgreSQL::Test::Utils::tempdir;
is(run_it($unpacked, qw(unzip -q), "$copy/test/out/zklock-$version.zip")->{status}, 0, 'which can be unpacked');
my $all = 'find . ! -type d ! -path "./.git/*" -printf "%P %m\n" | sed "s/ [0-9]*[1357][0-9]*\$/ x/; s/ [0-9]*\$/ -/" | sort';
is(run_it("$unpacked/zklock-$version", 'bash', '-c', $all)->{out},
	join('', sort map { /^(\d+) \S+ \d+\t(.*)$/ ? "$2 " . ($1 eq '100755' ? 'x' : '-') . "\n" : () } split /\n/, git(qw(ls-files --stage))),
	'it has all that is in the repository');

# Its targets have all that they are made from.  "make dist-check" makes them.
my $make = run_it("$unpacked/zklock-$version", qw(make -n all install installcheck));
is($make->{status}, 0, 'it can be built') or diag $make->{err};

# The comparison of catalogues is 308_upgrade; here, it does what CATALOGUE says.
unlink "$copy/test/run";
append_to_file("$copy/test/run", "#!/bin/bash\n[[ \$* == 'tap 308_upgrade' ]] && \${CATALOGUE:-true}\n");
chmod 0755, "$copy/test/run" or die $!;
git(qw(commit -q -a -m), 'replace the comparison');

sub refused
{
	my ($arguments, $why, $name) = @_;
	my $before = git(qw(diff HEAD));
	my $result = run_it($copy, 'package/release', @$arguments);
	is($result->{status}, 1, "$name: refused");
	like($result->{err}, $why, "$name: says why");
	is(git(qw(diff HEAD)), $before, "$name: nothing was changed");
	return;
}

# The same with another text in a file, committed.
sub refused_with
{
	my ($file, $from, $to, $why, $name) = @_;
	my $text = text($copy, $file);
	unlink "$copy/$file";
	append_to_file("$copy/$file", $text =~ s/$from/$to/rs);
	git(qw(commit -q -a -m), $name);
	refused(['1.2.3'], $why, $name);
	git(qw(reset -q --hard HEAD~));
	return;
}

refused([], qr/which version/, 'no version');
refused(['1.2'], qr/which version/, 'half a version');
refused(['7.5.0'], qr/no script .* leads to 7\.5/, 'a version without SQL objects');
append_to_file("$copy/README.md", "more\n");
refused(['1.2.3'], qr/not committed/, 'changes that are not committed');
git(qw(checkout -q README.md));
refused_with('CHANGELOG.md', qr/^## 1\.2 \(unreleased\)/m, '## 1.2', qr/no section/, 'no section in CHANGELOG.md');
refused_with('CHANGELOG.md', qr/(?<=unreleased\)\n).*?(?=^## )/ms, "\n", qr/no entry/, 'no entry in CHANGELOG.md');
refused_with('zklock.control', qr/default_version = '1\.2'/, "default_version = '1.0'", qr/another default_version/, 'another default version');
{
	local $ENV{CATALOGUE} = 'false';
	refused(['1.2.3'], qr/does not lead to 1\.2$/m, 'another catalogue after an update');
}

my $released = run_it($copy, 'package/release', '1.2.3');
is($released->{status}, 0, 'released') or diag $released->{err};
all_are($copy, '1.2.3', 'all places name the new version');
like(text($copy, 'CHANGELOG.md'), qr/^## 1\.2\.3 \(\d{4}-\d\d-\d\d\)$/m, 'the section of CHANGELOG.md has a date');
unlike(text($copy, 'debian/changelog'), qr/UNRELEASED/, 'the packages are for release');
is(decode_json(text($copy, 'META.json'))->{'meta-spec'}{version}, '1.0.0', 'the specification is the same');
is(git(qw(describe --exact-match)), "v1.2.3\n", 'the commit has a tag');
is(git(qw(status --porcelain)), '', 'nothing is left over');
refused(['1.2.3'], qr/exists already/, 'the same again');

done_testing();
