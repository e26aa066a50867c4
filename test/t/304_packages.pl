
# Which packages test/packages asks for, and with which command, and what it says: on releases with
# other versions of PostgreSQL, with and without sudo.  The tools of the package manager are
# replaced.

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use IPC::Run;
use Test::More;

use PostgreSQL::Test::Utils;

my $packages = abs_path(dirname(__FILE__) . '/../packages');
my $bin = PostgreSQL::Test::Utils::tempdir;
my @needed = qw(gcc libc6-dev make libpq-dev libssl-dev libzookeeper-st-dev postgresql-server-dev-17);

sub tool
{
	my ($name, $text) = @_;
	unlink "$bin/$name";
	append_to_file("$bin/$name", "#!/bin/bash\n$text\n");
	chmod 0755, "$bin/$name" or die $!;
	return;
}

# A machine: which packages are installed, which can be had, what pg_config says, and what
# sudo does ("yes", "asks", "no", or there is none).
sub machine
{
	my (%is) = @_;
	my $installed = join '|', 'none', @{ $is{installed} // [] };
	my $lacks = join '|', 'none', @{ $is{lacks} // [] };
	tool('dpkg-query', "[[ \${!#} =~ ^($installed)\$ ]] && printf installed");
	tool('apt-cache', "case \$1 in show) echo 'Depends: postgresql-17, other' ;;\n"
		  . "policy) [[ \$2 =~ ^($lacks)\$ ]] && echo '  Candidate: (none)' || echo '  Candidate: 1.0' ;; esac");
	tool('pg_config', $is{pg_config} ? "echo 'PostgreSQL $is{pg_config}.4'" : 'exit 127');
	unlink "$bin/sudo";
	my %sudo = (yes => '[[ "$*" == "-n true" ]] || echo "sudo $*"',
		asks => '[[ $1 == -p ]] && echo "$2${*:3}"',
		no => 'exit 1');
	tool('sudo', $sudo{ $is{sudo} }) if $is{sudo};
	return;
}

# Standard output, error output and exit status.
sub run_it
{
	my ($groups, %env) = @_;
	local %ENV = (PATH => $bin, %env);
	IPC::Run::run([ '/bin/bash', $packages, @$groups ], '<', \'', '>', \my $out, '2>', \my $err);
	return ($out, $err, $? >> 8);
}

# The same on a terminal: what the script shows, and its exit status.
sub run_on_terminal
{
	my ($groups) = @_;
	local %ENV = (PATH => $bin);
	IPC::Run::run([ '/bin/bash', $packages, @$groups ], '<pty<', \my $in, '>pty>', \my $out, '2>&1');
	return ($out =~ s/\r//gr, $? >> 8);
}

foreach my $tool (qw(sed grep head tr sort realpath env))
{
	my ($path) = grep { -x } map { "$_/$tool" } qw(/usr/bin /bin);
	symlink $path, "$bin/$tool" or die $!;
}

machine(installed => \@needed);
is_deeply([ run_it(['build']) ], [ "packages: all there\n", '', 0 ], "the release's own PostgreSQL");

machine(installed => [ @needed, 'postgresql-server-dev-16' ], pg_config => 16);
is_deeply([ run_it(['build']) ], [ "packages: all there\n", '', 0 ], 'the PostgreSQL that is there');

machine(installed => \@needed);
my ($out, $err, $status) = run_it(['build'], PG_VERSION => 15);
is($status, 1, 'the PostgreSQL that is wanted: is missing');
like($err, qr/^packages: missing: postgresql-server-dev-15\n/, 'the PostgreSQL that is wanted: its name');
like($err, qr{^packages: .* if root runs it: env PG_VERSION=15 $packages build$}m, 'without sudo: the command for root');

machine(installed => [ grep { !/postgresql/ } @needed ]);
is_deeply([ run_it(['build'], PG_CONFIG => '/opt/bin/pg_config') ], [ "packages: all there\n", '', 0 ],
	'a PostgreSQL that is no package');

machine(sudo => 'yes');
is_deeply([ run_it([ 'build', 'run' ]) ], [ "sudo -n env $packages build run\n", '', 0 ], 'sudo that works is used');
is_deeply([ run_it(['build'], PG_VERSION => 15) ], [ "sudo -n env PG_VERSION=15 $packages build\n", '', 0 ],
	'sudo: with the version');

machine(sudo => 'no');
($out, $err, $status) = run_it(['build']);
is($status, 1, 'sudo that would ask, without a terminal');
like($err, qr/if root runs it/, 'sudo that would ask: the command for root');

machine(installed => \@needed, sudo => 'asks');
my $named = 'packages: missing: default-jre-headless libzookeeper-java postgresql-17';
is_deeply([ run_on_terminal([ 'build', 'run' ]) ],
	[ "$named\npackages: sudo's password for %p, to install them: env $packages build run\n", 0 ],
	'on a terminal, sudo may ask');
machine(installed => \@needed, sudo => 'no');
is_deeply([ run_on_terminal([ 'build', 'run' ]) ],
	[ "$named\npackages: this command installs them, if root runs it: env $packages build run\n", 1 ],
	'on a terminal, where sudo refuses: the command for root');

machine(installed => [ @needed, 'postgresql-17' ], lacks => ['postgresql-17-cron']);
is_deeply([ run_it([ 'build', 'demo' ]) ],
	[ "packages: not to be had here, so what needs them is skipped: postgresql-17-cron\npackages: all there\n", '', 0 ],
	'what a release lacks is named, and not asked for');
machine(installed => \@needed);
like((run_it([ 'build', 'demo' ]))[1], qr/missing: postgresql-17-cron\n/, 'where it can be had, it is');
machine(lacks => \@needed);
like((run_it(['build']))[1], qr/missing: .*\blibzookeeper-st-dev\b/, 'what is necessary is asked for, whether it can be had or not');

is((run_it(['nonsense']))[2], 2, 'a group that does not exist');

done_testing();
