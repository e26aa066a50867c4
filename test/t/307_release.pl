
# The version of a release stands in several places; they agree, and "make release" changes
# all of them.  META.json has what PGXN requires, the packages are those of debian/control.in,
# and the Compose file uses settings and releases that exist.

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use IPC::Run;
use JSON::PP qw(decode_json);
use Test::More;

use PostgreSQL::Test::Utils;

my $top = abs_path(dirname(__FILE__) . '/../..');

sub text { return slurp_file("$_[0]/$_[1]"); }

# Where a tree says which version it is: what it says there.
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
ok(-f "$top/zklock--" . ($version =~ s/\.\d+$//r) . '.sql', 'the SQL objects of that version are there');
like(text($top, 'CHANGELOG.md'), qr/^## \Q@{[ $version =~ s{\.\d+$}{}r ]}\E/m, 'CHANGELOG.md has a section for it');

# What https://pgxn.org/meta/spec.txt requires.
foreach my $key (qw(name version abstract maintainer license provides meta-spec))
{
	ok($meta->{$key}, "META.json has $key");
}
like($meta->{version}, qr/^\d+\.\d+\.\d+$/, 'a semantic version');
is($meta->{'meta-spec'}{version}, '1.0.0', 'the version of the specification');
is($meta->{license}, 'postgresql', 'a licence by the name that PGXN knows');
ok(-f "$top/$_", "META.json: $_ exists") foreach map { @{$_}{qw(file docfile)} } values %{ $meta->{provides} };
like($meta->{release_status}, qr/^(?:stable|testing|unstable)$/, 'a release status');

# debian/control is made of debian/control.in, here for the oldest version.
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
my ($image_version) = text($top, 'package/Dockerfile') =~ /^ARG PG_VERSION=(\d+)$/m;
cmp_ok($image_version, '>=', $oldest, 'the image has a PostgreSQL that is supported');

# "make install" installs these files, below the directories that pg_config names.
my $stage = PostgreSQL::Test::Utils::tempdir;
is(run_it($top, qw(make -s install), "DESTDIR=$stage")->{status}, 0, 'make install');
my $series = $version =~ s/\.\d+$//r;
is_deeply([ sort map { s{.*/}{}r } split /\n/, run_it($stage, qw(find . -type f))->{out} ],
	[ sort 'zklock.so', 'zklock.control', "zklock--$series.sql", 'zklock-run', 'zklock-run.1' ],
	'what is installed');

# A release, in a repository of its own.
my $copy = PostgreSQL::Test::Utils::tempdir;
my @git = qw(git -c user.name=test -c user.email=test@example.org);
local @ENV{qw(GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL GIT_CONFIG_GLOBAL)} =
  (qw(test test@example.org test test@example.org), '/dev/null');

is(run_it($top, qw(cp -r META.json CHANGELOG.md zklock.control zklock--1.0.sql package debian), $copy)->{status}, 0, 'copied');
is(run_it($copy, @$_)->{status}, 0, "@$_")
  foreach [qw(git init -q)], [qw(git add .)], [qw(git commit -q -m first)];

sub refused
{
	my ($arguments, $why, $name) = @_;
	my $result = run_it($copy, 'package/release', @$arguments);
	is($result->{status}, 1, "$name: refused");
	like($result->{err}, $why, "$name: says why");
	is(run_it($copy, qw(git status --porcelain -uno))->{out}, '', "$name: nothing was changed");
	return;
}

refused([], qr/which version/, 'no version');
refused(['1.0'], qr/which version/, 'half a version');
refused(['7.5.0'], qr/no zklock--7\.5\.sql/, 'a version without SQL objects');

my $released = run_it($copy, 'package/release', '1.0.3');
is($released->{status}, 0, 'released') or diag $released->{err};
all_are($copy, '1.0.3', 'all places name the new version');
like(text($copy, 'CHANGELOG.md'), qr/^## 1\.0\.3 \(\d{4}-\d\d-\d\d\)$/m, 'the section of CHANGELOG.md has a date');
unlike(text($copy, 'debian/changelog'), qr/UNRELEASED/, 'the packages are for release');
is(decode_json(text($copy, 'META.json'))->{'meta-spec'}{version}, '1.0.0', 'the specification is the same');
is(run_it($copy, qw(git describe --exact-match))->{out}, "v1.0.3\n", 'the commit has a tag');
is(run_it($copy, qw(git status --porcelain))->{out}, '', 'nothing is left over');
refused(['1.0.3'], qr/exists already/, 'the same again');

done_testing();
