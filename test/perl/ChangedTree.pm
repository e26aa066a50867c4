
# A copy of the tree in which a script changes the code, to see whether a test fails then.

package ChangedTree;

use strict;
use warnings;

use Cwd qw(abs_path);
use Exporter qw(import);
use File::Basename qw(dirname);
use File::Temp qw(tempdir);

our @EXPORT = qw(slurp spew);

# Copies what git knows, or would add.
sub new
{
	my ($class) = @_;
	my $top = abs_path(dirname(__FILE__) . '/../..');
	my $scratch = tempdir('zklock-changed.XXXXXX', TMPDIR => 1, CLEANUP => 1);
	my $self = bless { top => $top, dir => "$scratch/tree", log => "$scratch/log" }, $class;
	chmod 0755, $scratch;
	mkdir $self->{dir} or die "$self->{dir}: $!\n";
	$self->run("cd '$top' && git ls-files -z --cached --others --exclude-standard"
		  . " | tar --null -T - -cf - | tar -C $self->{dir} -xf -") or die $self->log;
	return $self;
}

sub top { my ($self) = @_; return $self->{top}; }
sub dir { my ($self) = @_; return $self->{dir}; }

# True if this succeeds.  The log has what it prints.
sub run
{
	my ($self, $command) = @_;
	return system('bash', '-c', "set -o pipefail; { $command; } >$self->{log} 2>&1 </dev/null") == 0;
}

sub log { my ($self) = @_; return slurp($self->{log}); }

# Runs a test: "unit NAME", or what test/run takes.  Returns whether it passes, and the cases that fail, as cmocka,
# TAP or pg_regress call them, and the state for which a test has waited in vain.  There are none if the test did
# not begin, or broke off otherwise.
sub try
{
	my ($self, $test) = @_;
	local $ENV{PG_TEST_TIMEOUT_DEFAULT} //= 90;		# a test that waits in vain need not do so for minutes
	my $unit = $test =~ /^unit (\w+)$/ ? "$self->{dir}/test/unit/$1" : undef;
	my $ready = !$unit || $self->run("make -s -C $self->{dir} test/unit/$1");
	my $passes = $ready && $self->run($unit ? "cd $self->{dir} && $unit" : "$self->{dir}/test/run $test");
	return 1 if $passes;
	return (0, $ready ? $self->log =~ /^(?|\[  FAILED  \] (?!.*test\(s\))(.*)|not ok \d+ *-? *(.*)|(?:test| ) +(\w+) +\.\.\. FAILED|(timed out waiting .*))/mg : ());
}

sub slurp
{
	my ($file) = @_;
	local (@ARGV, $/) = $file;
	return scalar <>;
}

sub spew
{
	my ($file, $text) = @_;
	open my $f, '>', $file or die "$file: $!\n";
	print $f $text;
	close $f or die "$file: $!\n";
	return;
}

1;
