// RUN: tpusim opt -p 'fold' %s | filecheck %s
//
// Ops of constants become constants, ops with a neutral operand the other one.

module attributes {module.state = "TOP_F32"} {
  func.func @main(%in: tensor<1x4xf32>) -> tensor<1x4xf32> {
    %x = "top.Input"(%in) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("x")
    %y = "top.Relu"(%x) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("y")
    func.return %y : tensor<1x4xf32>
  }
  func.func private @rows(%n: index) -> index {
    %a = arith.constant 3 : index
    %b = arith.constant 4 : index
    %zero = arith.constant 0 : index
    %c = arith.muli %a, %b : index
    %d = arith.addi %n, %zero : index
    %e = arith.addi %d, %c : index
    func.return %e : index
  }
}

// CHECK:      func.func @main(
// CHECK-NEXT: %x = "top.Input"(%in) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("x")
// CHECK-NEXT: %y = "top.Relu"(%x) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<1x4xf32>
// CHECK:      func.func private @rows(
// CHECK-NEXT: %a = arith.constant 3 : index
// CHECK-NEXT: %b = arith.constant 4 : index
// CHECK-NEXT: %zero = arith.constant 0 : index
// CHECK-NEXT: %c = arith.constant 12 : index
// CHECK-NEXT: %e = arith.addi %n, %c : index
// CHECK-NEXT: func.return %e : index
